"""More requests than the engine has slots for, again and again: order, slots, and what is kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.agreement import agree
from harness.findings import expect

if TYPE_CHECKING:
    from harness.shared_engine import SharedEngine

pytestmark = pytest.mark.tight


def test_runner_reorders_rows(
    engine: SharedEngine, prompt_sets: dict[str, list[list[int]]], reference: dict[str, Any]
) -> None:
    """Lengths that make requests leave and enter the batch in mixed order: every row is its prompt's."""
    many = prompt_sets["many"]
    engine.activity()
    agree(
        engine,
        engine.capture(many),
        many,
        reference,
        "many",
        cause="rows were taken in the scheduler's order, and the runner has an order of its own",
        advice="map rows to requests inside the worker, from the runner's own batch",
    )
    # An EngineCore takes requests as they come: what its batches are depends on the time.
    if not engine.spec.engine_core_process:
        engine.happened(
            "reordered",
            1,
            what=f"a batch in another order than the scheduler's, with {engine.spec.max_num_seqs} slots",
            cause="the runner keeps the scheduler's order: this case proves nothing about order",
            advice="choose other lengths in harness/prompts.py",
        )


def test_no_slot_leaks(
    engine: SharedEngine, prompt_sets: dict[str, list[list[int]]], reference: dict[str, Any]
) -> None:
    """Three times as many prompts as slots, twice: the same again, and the runner holds no more than before."""
    many = prompt_sets["many"]
    held = []
    for _call in range(2):
        agree(
            engine,
            engine.capture(many),
            many,
            reference,
            "many",
            cause="a request kept its slot, or states of an earlier one were filed under it",
            advice="run the step that tells workers of finished requests, and forget what was taken",
        )
        activity = engine.activity()
        held.append(activity["held"] if activity is not None else 0)
    expect(
        held[1] <= min(held[0], engine.spec.max_num_seqs),
        expected=f"no more than {engine.spec.max_num_seqs} requests in the runner, and no more than before",
        got=f"{held[0]} after the first call, {held[1]} after the second",
        cause="the runner was not told that requests have finished",
        advice="after the last token, run the step that carries only the ids of finished requests",
    )
