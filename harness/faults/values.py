"""Recorded faults in the values that are given: each name is a client, and an entry of ``catalogue.toml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .changing import CHUNK, changed, of_layers, of_samples, of_states
from .recorded import RecordedClient, recorded
from .recording import WITH_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.arrays import Array
    from harness.clients.contract import Sample


def _part(part: str) -> RecordedClient:
    """A client that gives a part of the layer instead, where the recording has it: for the first prompt."""
    prompt = recorded().prompts[WITH_PARTS]

    def change(samples: list[Sample]) -> list[Sample]:
        return [
            replace(
                sample,
                states={layer: recorded().reference[f"{WITH_PARTS}.{layer}.{part}"] for layer in sample.states},
            )
            if sample.token_ids == prompt
            else sample
            for sample in samples
        ]

    return of_samples(change)


residual_missing = _part("mlp")
mlp_missing = _part("attention")
after_the_norm = _part("norm")


def _from_layer(source: Callable[[int], int]) -> RecordedClient:
    return of_layers(lambda layers: {layer: layers[source(layer)] for layer in layers})


one_layer_early = _from_layer(lambda layer: max(layer - 1, 0))
one_layer_late = _from_layer(lambda layer: min(layer + 1, 4))
layers_swapped = _from_layer(lambda layer: {1: 3, 3: 1}.get(layer, layer))
layer_doubled = _from_layer(lambda layer: 2 if layer == 3 else layer)  # noqa: PLR2004 - any other one would do.


@of_states
def rows_shifted(states: Array) -> Any:
    return np.roll(states, 1, axis=0)


@of_samples
def rows_shifted_in_a_batch(samples: list[Sample]) -> list[Sample]:
    if len(samples) == 1:
        return samples
    return [changed(sample, lambda states: np.roll(states, -1, axis=0)) for sample in samples]


@of_states
def rows_reversed(states: Array) -> Any:
    return np.ascontiguousarray(states[::-1])


@of_states
def zeros(states: Array) -> Any:
    return np.zeros_like(states)


def _row_filled(number: float) -> RecordedClient:
    def change(states: Array) -> Any:
        changed = states.copy()
        changed[len(states) // 2] = number
        return changed

    return of_states(change)


one_nan_row = _row_filled(np.nan)
one_zero_row = _row_filled(0.0)


@of_states
def first_chunk_only(states: Array) -> Any:
    return states[:CHUNK]


@of_states
def last_chunk_only(states: Array) -> Any:
    return states[-(len(states) % CHUNK or CHUNK) :]


@of_states
def cached_prefix_empty(states: Array) -> Any:
    hit = (len(states) - 1) // CHUNK * CHUNK
    return np.concatenate([np.zeros_like(states[:hit]), states[hit:]])


@of_states
def later_chunks_empty(states: Array) -> Any:
    return np.concatenate([states[:CHUNK], np.zeros_like(states[CHUNK:])])


@of_samples
def buffer_used_again(samples: list[Sample]) -> list[Sample]:
    longest = max(len(sample.token_ids) for sample in samples)
    width = recorded().config["hidden_size"]
    buffers = {layer: np.zeros((longest, width), dtype=np.float32) for layer in samples[0].states}
    given = []
    for sample in samples:
        count = len(sample.token_ids)
        for layer, states in sample.states.items():
            buffers[layer][:count] = states
        given.append(replace(sample, states={layer: buffers[layer][:count] for layer in sample.states}))
    return given


@of_states
def scaled(states: Array) -> Any:
    return states * np.float32(recorded().config["hidden_size"] ** 0.5)


@of_states
def rounded_to_bfloat16(states: Array) -> Any:
    return ((states.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@of_states
def rounded_to_float16(states: Array) -> Any:
    return states.astype(np.float16).astype(np.float32)


@of_states
def first_row_for_all(states: Array) -> Any:
    return np.ascontiguousarray(np.broadcast_to(states[:1], states.shape))
