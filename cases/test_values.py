"""Values against the Hugging Face float32 forward of the same checkpoint, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness import recognition
from harness.agreement import agree
from harness.arrays import difference
from harness.findings import expect
from harness.models.deepseek_v2 import NUM_LAYERS

if TYPE_CHECKING:
    from harness.shared_engine import SharedEngine


@pytest.mark.parametrize("layer", range(NUM_LAYERS), ids=lambda layer: f"layer{layer}")
def test_values(engine: SharedEngine, prompts: list[list[int]], reference: dict[str, Any], layer: int) -> None:
    """The residual stream after each decoder layer, before the final norm, is Hugging Face's."""
    samples = engine.shared_capture(prompts)
    for number, sample in enumerate(samples):
        apart = difference(sample.states[layer], reference[f"batch.{number}.{layer}"])
        if apart.within(engine.tolerance):
            continue
        expect(
            False,
            expected=f"prompt {number} ({len(prompts[number])} tokens): Hugging Face's, within {engine.tolerance:g} "
            "of the largest value",
            got=str(apart),
            cause=recognition.rows(sample.states[layer], reference, "batch.", number, layer, engine.tolerance),
            advice="if neighbouring layers or rows match instead, correct the layer convention or the row mapping; "
            "otherwise vLLM computes it wrongly: list it in harness/known_faults.toml with evidence",
        )


def test_long_prompts(
    engine: SharedEngine, prompt_sets: dict[str, list[list[int]]], reference: dict[str, Any]
) -> None:
    """The longest prompt that fits and four long ones, in one call: far more rows than any other case asks for."""
    longest = prompt_sets["limit"][0][: engine.spec.max_model_len - 1]
    asked = [longest, *prompt_sets["crowd"]]
    # What comes after a token makes no difference to its states.
    expected = {f"all.0.{layer}": reference[f"limit.0.{layer}"][: len(longest)] for layer in engine.spec.layers}
    for number in range(1, len(asked)):
        expected |= {
            f"all.{number}.{layer}": reference[f"crowd.{number - 1}.{layer}"] for layer in engine.spec.layers
        }
    agree(
        engine,
        engine.capture(asked),
        asked,
        expected,
        "all",
        cause="right for few rows only: a buffer has an end, or the last position was left out",
        advice="make room for max_num_batched_tokens rows a forward and max_model_len a prompt, or refuse more",
    )
