"""Per layer: how many, which, of what shape and type, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harness import recognition
from harness.arrays import broken_rows, empty_rows, storage
from harness.checkpoint import model_config
from harness.errors import InvalidLayerError
from harness.findings import expect
from harness.structure import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.shared_engine import SharedEngine


def test_count_shape_and_dtype(engine: SharedEngine, prompts: list[list[int]], matches: Callable[..., None]) -> None:
    """Every sample holds each requested layer once, ``[n, hidden_size]``, under the id it was asked for."""
    samples = engine.shared_capture(prompts)
    matches(
        [{"tokens": len(sample.token_ids), "layers": describe(dict(sample.states))} for sample in samples],
        cause=recognition.structure(
            samples, prompts, engine.spec.layers, model_config(engine.spec.model)["hidden_size"]
        ),
        advice="look at the first differing path: [5] alone means that a reply was indexed one level too deep",
    )


def test_full_hidden_size(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """The residual stream is whole on one rank: its width is not divided by the tensor-parallel size."""
    width = model_config(engine.spec.model)["hidden_size"]
    for number, (sample, prompt) in enumerate(zip(engine.shared_capture(prompts), prompts, strict=False)):
        for layer, states in sample.states.items():
            shape = tuple(states.shape)
            expect(
                shape == (len(prompt), width),
                expected=f"prompt {number}, layer {layer}: [{len(prompt)}, {width}]",
                got=str(list(shape)),
                cause=recognition.shape_of_layer(shape, len(prompt), width),
                advice="capture after the layer's all-reduce; gather when the row count is not that of the batch",
            )


def test_requested_order(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """Layers come in the order they were asked for: unsorted, with the first, a middle one and the last."""
    for number, sample in enumerate(engine.shared_capture(prompts)):
        expect(
            tuple(sample.states) == engine.spec.layers,
            expected=f"prompt {number}: layers {list(engine.spec.layers)}",
            got=str(list(sample.states)),
            cause="states come back in the order in which the model computes them"
            if sorted(sample.states, key=str) == sorted(engine.spec.layers)
            else "further layers came along: what is captured is not what was asked for"
            if set(sample.states) > set(engine.spec.layers)
            else "layer ids were changed on the way: through JSON they become text",
            advice="key states by layer id in the worker, and pick them by id in the driver",
        )


@pytest.mark.parametrize("bad", ["below", "number-of-layers", "far-above", "twice", "none"])
def test_invalid_layers_are_refused(engine: SharedEngine, bad: str) -> None:
    """An id that the model does not have, a repeated one, or none: refused, and by name."""
    count = model_config(engine.spec.model)["num_hidden_layers"]
    layers = {
        "below": (0, -1),
        "number-of-layers": (0, count),
        "far-above": (0, 1000),
        "twice": (1, 1),
        "none": (),
    }[bad]
    got = engine.open_refused(replace(engine.spec, layers=layers), InvalidLayerError)
    expect(
        not got,
        expected=f"layers {list(layers)} to be refused with InvalidLayerError",
        got=got,
        cause="an id that no layer has is dropped silently (vLLM 0.18.1 to 0.24.0 for the DeepSeek family), "
        "and training then misses a layer",
        advice="check ids against num_hidden_layers before booting",
    )


def test_sound_data(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """Every row is finite and not all zeros, in the model's dtype, contiguous, and on the CPU."""
    for number, sample in enumerate(engine.shared_capture(prompts)):
        for layer, states in sample.states.items():
            where = f"prompt {number}, layer {layer}"
            empty, broken = empty_rows(states), broken_rows(states)
            expect(
                not empty,
                expected=f"{where}: no row of zeros",
                got=f"rows {empty} of {len(states)} are all zeros",
                cause="the buffer was read before it was filled, or the forward did not go through the hooks",
                advice="wait for the copy before the reply; register hooks on the modules that vLLM calls",
            )
            expect(
                not broken,
                expected=f"{where}: every value finite",
                got=f"rows {broken} of {len(states)} are not",
                cause="memory that was never written, or values beyond the dtype's range: training goes on with them",
                advice="fill what is allocated, and keep the dtype in which the model computes",
            )
            dtype, device, contiguous = storage(states)
            expect(
                (dtype, device, contiguous) == (engine.spec.dtype, "cpu", True),
                expected=f"{where}: {engine.spec.dtype}, on the CPU, contiguous",
                got=f"{dtype}, on {device}, {'contiguous' if contiguous else 'strided'}",
                cause="states were cast"
                if dtype != engine.spec.dtype
                else "states were left on the device"
                if device != "cpu"
                else "states are a view into a larger buffer, which they keep alive, or are transposed in place",
                advice="copy the rows out in the worker, in the dtype in which the model computes them",
            )
