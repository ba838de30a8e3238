"""Chunked prefill: a prompt that is cut into pieces gives what it gives in one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from harness.agreement import agree

if TYPE_CHECKING:
    from harness.shared_engine import SharedEngine

CAUSE = "rows of a chunk are missing or out of place: one chunk alone was kept, or each as a capture of its own"
ADVICE = "file rows by the position in the prompt (num_computed_tokens), over as many forwards as it takes"


def _cut(engine: SharedEngine, at_least: int) -> None:
    """The runner did cut prompts into chunks, where the engine can tell."""
    engine.happened(
        "cut",
        at_least,
        what=f"at least {at_least} chunks that end before their prompt, with a budget of "
        f"{engine.spec.max_num_batched_tokens}",
        cause="the engine does not chunk: this case proves nothing about chunks",
        advice="look at what the release makes of enable_chunked_prefill and max_num_batched_tokens",
    )


@pytest.mark.tight
@pytest.mark.parametrize("number", [0, 1], ids=["3-budgets", "3.5-budgets"])
def test_long_prompt(
    engine: SharedEngine, prompt_sets: dict[str, list[list[int]]], reference: dict[str, Any], number: int
) -> None:
    """A prompt of 3, or of 3.5 times the token budget, is captured whole."""
    prompt = prompt_sets["long"][number]
    engine.activity()
    samples = engine.capture([prompt])
    alone = {f"alone.0.{layer}": reference[f"long.{number}.{layer}"] for layer in engine.spec.layers}
    agree(engine, samples, [prompt], alone, "alone", cause=CAUSE, advice=ADVICE)
    _cut(engine, math.ceil(len(prompt) / engine.spec.max_num_batched_tokens) - 1)


@pytest.mark.tight
def test_prompts_share_a_budget(
    engine: SharedEngine, prompt_sets: dict[str, list[list[int]]], reference: dict[str, Any]
) -> None:
    """Long prompts and short ones, cut so that one forward holds pieces of several."""
    for name in ("long", "batch"):
        engine.activity()
        samples = engine.capture(prompt_sets[name])
        agree(
            engine,
            samples,
            prompt_sets[name],
            reference,
            name,
            cause=CAUSE,
            advice=ADVICE,
        )
        _cut(engine, 1)
