"""One adapter a generation; capabilities decide which, never a version."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from harness import capabilities as facts
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from harness.capabilities import Capabilities

    from .base import Adapter

GENERATIONS = {
    "single-phase": "SinglePhase",
    "two-phase": "TwoPhase",
    "explicit-warm-up": "ExplicitWarmUp",
    "negotiated-layout": "NegotiatedLayout",
    "moved-planner": "MovedPlanner",
}


def generation(capabilities: Capabilities) -> str:
    """The generation that a vLLM with these capabilities belongs to.

    Raises:
        EnvironmentUnusableError: it is older than the oldest one.
    """
    if not capabilities.group_planner:
        raise EnvironmentUnusableError(
            "this vLLM has no KV-cache planner by groups (0.10.2 and older): no adapter drives it. "
            "Use vLLM 0.11.0 or newer."
        )
    if not capabilities.sample_tokens:
        return "single-phase"
    if capabilities.moved_planner:
        return "moved-planner"
    if capabilities.negotiated_layout:
        return "negotiated-layout"
    if capabilities.explicit_warm_up:
        return "explicit-warm-up"
    return "two-phase"


def select() -> type[Adapter]:
    """The adapter for the vLLM installed here."""
    name = generation(facts.installed())
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    adapter: type[Adapter] = getattr(module, GENERATIONS[name])
    return adapter
