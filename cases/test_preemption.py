"""Preemption: a request that loses its KV blocks and begins again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.agreement import agree

if TYPE_CHECKING:
    from harness.shared_engine import SharedEngine


@pytest.mark.tight
def test_preempted_prompts(
    engine: SharedEngine, prompt_sets: dict[str, list[list[int]]], reference: dict[str, Any]
) -> None:
    """Prompts of which any fits the KV cache and no two do: nothing is lost, doubled or shifted."""
    crowd = prompt_sets["crowd"]
    engine.activity()
    agree(
        engine,
        engine.capture(crowd),
        crowd,
        reference,
        "crowd",
        cause="rows were filed by the order of forwards: a preempted request starts again from an earlier position",
        advice="file rows by the position in the prompt (num_computed_tokens); later rows replace earlier ones",
    )
    engine.happened(
        "resumed",
        1,
        what=f"a preempted request, with {engine.spec.num_kv_blocks} KV blocks of {engine.spec.block_size}",
        cause="the scheduler preempts nobody: this case proves nothing about preemption",
        advice="look at how the release admits requests (scheduler_reserve_full_isl) and at its block size",
    )
