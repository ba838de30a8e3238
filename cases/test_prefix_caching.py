"""Prefix caching: what the engine has computed before is still captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.agreement import agree

if TYPE_CHECKING:
    from harness.shared_engine import SharedEngine

pytestmark = pytest.mark.tight

CAUSE = "rows of a cached prefix are missing: the runner does not compute them again, so no hook sees them"
ADVICE = "give every request a cache_salt of its own, or set enable_prefix_caching=False"


def test_same_prompt_twice(
    engine: SharedEngine, prompt_sets: dict[str, list[list[int]]], reference: dict[str, Any]
) -> None:
    """The same prompt twice in one call, and in a call after that: full length, right values, each time."""
    prompt = prompt_sets["long"][0]
    twice = {
        f"twice.{number}.{layer}": reference[f"long.0.{layer}"] for number in (0, 1) for layer in engine.spec.layers
    }
    for _call in range(2):
        samples = engine.capture([prompt, prompt])
        agree(
            engine,
            samples,
            [prompt, prompt],
            twice,
            "twice",
            cause=CAUSE,
            advice=ADVICE,
        )


def test_shared_prefix(
    engine: SharedEngine, prompt_sets: dict[str, list[list[int]]], reference: dict[str, Any]
) -> None:
    """Two prompts that share two blocks and a bit, one after the other, and then together."""
    shared = prompt_sets["shared"]
    samples = [engine.capture([prompt])[0] for prompt in shared]
    agree(engine, samples, shared, reference, "shared", cause=CAUSE, advice=ADVICE)
    agree(
        engine,
        engine.capture(shared),
        shared,
        reference,
        "shared",
        cause=CAUSE,
        advice=ADVICE,
    )
