"""Clients by name: ours here, anybody's as ``module:attribute``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from harness.errors import UsageError
from harness.walk import Failure, explained_by

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .contract import Client, RepairableClient

IN_HOUSE = {
    "executor": "harness.clients.executor:CLIENT",
    "llm": "harness.clients.llm:CLIENT",
    "extract": "harness.clients.extract:CLIENT",
    "extract-hidden-states": "harness.clients.extraction.client:CLIENT",
    "speculators-0.3.0": "harness.clients.speculators_0_3_0:CLIENT",
    "speculators-0.3.0-repaired": "harness.clients.speculators_0_3_0:REPAIRED",
}

# What a client needs beside vLLM, in one environment with it.
REQUIREMENTS = {
    "speculators-0.3.0": ("speculators==0.3.0",),
    "speculators-0.3.0-repaired": ("speculators==0.3.0",),
}


def requirements(names: Iterable[str]) -> tuple[str, ...]:
    """What an environment must hold beside vLLM for these clients; nothing for ours and for anybody's own."""
    return tuple(dict.fromkeys(requirement for name in names for requirement in REQUIREMENTS.get(name, ())))


def load(name: str) -> Client:
    """The client that a name or ``module:attribute`` means.

    Raises:
        UsageError: there is no such client; nothing of vLLM has been imported by then.
    """
    target = IN_HOUSE.get(name, name)
    module, _, attribute = target.partition(":")
    if not attribute:
        raise UsageError(
            f"no client {name!r}: give one of {', '.join(IN_HOUSE)}, or module:attribute for your own "
            f"(docs/how-to/add-a-client.md)."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # Its author's module may raise anything.
        raise UsageError(
            f"client {name!r} cannot be loaded: {type(error).__name__}: {error}. {_advice(target, error)}"
        ) from error
    missing = [member for member in ("name", "refuses", "open") if not hasattr(found, member)]
    if missing:
        raise UsageError(f"client {name!r} lacks {', '.join(missing)} (docs/how-to/add-a-client.md).")
    return cast("Client", found)


def _advice(target: str, error: Exception) -> str:
    """What to do about a client that cannot be loaded."""
    module, _, attribute = target.partition(":")
    if isinstance(error, ModuleNotFoundError):
        if error.name and f"{module}.".startswith(f"{error.name}."):
            return (
                "Put the folder that holds it on PYTHONPATH (PYTHONPATH=$PWD for the current one), or install its "
                "package into this environment."
            )
        return "Install what it imports into this environment, or correct the import."
    if module and isinstance(error, AttributeError) and error.name == attribute:
        return f"Give the name of an object in {module} (docs/how-to/add-a-client.md)."
    return "Correct it and run it again (docs/how-to/add-a-client.md)."


def repairs(names: Iterable[str], device: str) -> dict[str, tuple[str, ...]]:
    """What the repairable ones of these clients open with, by client.

    Raises:
        EnvironmentUnusableError: the code that a client drives is not installed here.
    """
    loaded = {name: load(name) for name in sorted(names)}
    return {
        name: cast("RepairableClient", client).opens_with(device)
        for name, client in loaded.items()
        if hasattr(client, "repairs")
    }


def explained(name: str, applied: tuple[str, ...], error: Exception) -> Exception:
    """Why a client did not open, as the finding of the repair that it lacks; the error itself if none is known."""
    if not applied:  # Somebody else's code never opens with nothing: a stand-in is there at the least.
        return error
    repairable = cast("RepairableClient", load(name))
    return explained_by(repairable.repairs, Failure(applied=applied, error=f"{type(error).__name__}: {error}"), error)
