"""The protocol of one step: what ``execute_model`` gives, and that ``sample_tokens`` is owed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.agreement import sound
from harness.arrays import difference
from harness.findings import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.shared_engine import SharedEngine

CAUSE = (
    "the step protocol changed: since 0.11.1 execute_model returns None and sample_tokens is owed; left out, the "
    "next execute_model raises (v1/worker/gpu_model_runner.py)"
)
ADVICE = "out = execute_model(so); out = sample_tokens(None) if out is None else out: right in every pinned release"


@pytest.mark.parametrize("skip", [0, 1, 2], ids=["none-skipped", "skipped-once", "skipped-twice"])
def test_steps(engine: SharedEngine, prompts: list[list[int]], skip: int, matches: Callable[..., None]) -> None:
    """Three prompts, a step each, the second phase left out of the first ``skip`` steps."""
    engine.offer("steps")
    before = engine.shared_capture(prompts)
    steps = engine.call("steps", prompts[:3], skip=skip)
    matches(
        [f"execute_model: {step['execute_model']}; sample_tokens: {step['sample_tokens']}" for step in steps],
        cause=CAUSE,
        advice=ADVICE,
    )
    # The engine must be sound again afterwards: a half-done step may not leak into the next capture.
    after = engine.capture(prompts)
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        sound(other, engine.spec, f"prompt {number}, after the steps")
        for layer, states in one.states.items():
            apart = difference(states, other.states[layer])
            expect(
                apart.within(engine.tolerance),
                expected=f"prompt {number}, layer {layer}: the same states as before the steps",
                got=str(apart),
                cause="a step whose second phase was late left something in the workers",
                advice="pay the phase that is owed before anything else, with the batch it belongs to",
            )
