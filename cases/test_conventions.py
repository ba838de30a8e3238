"""The two ways to count layers: by output, as here, and by input, as vLLM's own extraction does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.arrays import difference
from harness.checkpoint import model_config
from harness.findings import expect

if TYPE_CHECKING:
    from harness.shared_engine import SharedEngine


def test_output_is_the_next_input(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """The output of layer i is the input of layer i + 1, and the last one's is what enters the final norm."""
    engine.offer("inputs")
    (sample,) = engine.capture([prompts[0]])
    inputs = engine.call("inputs", prompts[0])
    count = model_config(engine.spec.model)["num_hidden_layers"]
    expect(
        sorted(inputs) == list(range(count + 1)),
        expected=f"inputs of layers 0 to {count - 1}, and {count} for what the last one gives",
        got=str(sorted(inputs)),
        cause="an id equal to the number of layers captures nothing (vLLM 0.18.1 to 0.24.0, DeepSeek family)",
        advice="take the last layer's states before the final norm, not from a layer that does not exist",
    )
    for layer, states in sample.states.items():
        apart = difference(states, inputs[layer + 1])
        expect(
            apart.within(engine.tolerance),
            expected=f"the output of layer {layer} equal to the input of layer {layer + 1}",
            got=str(apart),
            cause="the two conventions were mixed, the residual left out, or the last layer taken after the norm",
            advice="convert ids once, where the client is opened: input id = output id + 1",
        )
