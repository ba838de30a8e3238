"""Recorded faults in what a capture gives: each name here is a client, and an entry of ``catalogue.toml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .recorded import RecordedClient, RecordedEngine, recorded
from .recording import WITH_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.arrays import Array
    from harness.clients.contract import Sample

CHUNK = 16


def _samples(change: Callable[[list[Sample]], list[Sample]]) -> RecordedClient:
    """A client that changes its samples before it gives them."""

    class Changed(RecordedEngine):
        def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
            return change(super().capture(prompts))

    return RecordedClient(Changed)


def _layers(change: Callable[[dict[int, Array]], dict[Any, Any]]) -> RecordedClient:
    """A client that changes the layers of each sample."""
    return _samples(lambda samples: [replace(sample, states=change(dict(sample.states))) for sample in samples])


def _states(change: Callable[[Array], Any]) -> RecordedClient:
    """A client that changes every layer of each sample."""
    return _layers(lambda layers: {layer: change(states) for layer, states in layers.items()})


# How many, of what structure.


@_layers
def layer_taken_for_all(layers: dict[int, Array]) -> dict[Any, Any]:
    return dict(enumerate(layers[0]))


@_states
def one_list_too_deep(states: Array) -> Any:
    return states[None]


@_states
def lost_tensors(states: Array) -> Any:
    return ["float32", list(states.shape), 1]


@_states
def hidden_size_divided(states: Array) -> Any:
    return np.ascontiguousarray(states[:, : states.shape[1] // 2])


@_states
def transposed(states: Array) -> Any:
    return np.ascontiguousarray(states.T)


@_states
def column_major(states: Array) -> Any:
    return np.asfortranarray(states)


@_states
def half_precision(states: Array) -> Any:
    return states.astype(np.float16)


@_states
def last_row_dropped(states: Array) -> Any:
    return states[:-1]


@_states
def generated_row_kept(states: Array) -> Any:
    return np.concatenate([states, states[-1:] + 1])


@_states
def padding_kept(states: Array) -> Any:
    return np.concatenate([states, np.zeros((-len(states) % CHUNK or CHUNK, states.shape[1]), dtype=np.float32)])


@_states
def last_row_only(states: Array) -> Any:
    return states[-1:]


@_samples
def whole_batch_in_each(samples: list[Sample]) -> list[Sample]:
    together = {layer: np.concatenate([sample.states[layer] for sample in samples]) for layer in samples[0].states}
    return [replace(sample, states=together) for sample in samples]


@_layers
def layer_missing(layers: dict[int, Array]) -> dict[Any, Any]:
    return {layer: states for layer, states in layers.items() if layer != max(layers)}


@_layers
def final_states_came_along(layers: dict[int, Array]) -> dict[Any, Any]:
    return {**layers, max(layers) + 1: layers[max(layers)]}


@_layers
def layer_ids_as_text(layers: dict[int, Array]) -> dict[Any, Any]:
    return {str(layer): states for layer, states in layers.items()}


@_layers
def computed_order(layers: dict[int, Array]) -> dict[Any, Any]:
    return dict(sorted(layers.items()))


# Which prompt's.


@_samples
def one_sample_missing(samples: list[Sample]) -> list[Sample]:
    return samples[:-1]


@_samples
def one_sample_doubled(samples: list[Sample]) -> list[Sample]:
    return [samples[0], *samples]


@_samples
def prompts_swapped(samples: list[Sample]) -> list[Sample]:
    return [*samples[1::-1], *samples[2:]]


@_samples
def sorted_by_length(samples: list[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda sample: len(sample.token_ids))


@_samples
def rows_sorted_by_length(samples: list[Sample]) -> list[Sample]:
    by_length = sorted(samples, key=lambda sample: len(sample.token_ids))
    return [replace(sample, states=other.states) for sample, other in zip(samples, by_length, strict=True)]


@_samples
def token_ids_changed(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, token_ids=[*sample.token_ids[:-1], 0]) for sample in samples]


@_samples
def special_token_added(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, token_ids=[0, *sample.token_ids]) for sample in samples]


@_samples
def prompt_cut(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, token_ids=sample.token_ids[:CHUNK]) for sample in samples]


@_samples
def equal_prompts_merged(samples: list[Sample]) -> list[Sample]:
    return list({tuple(sample.token_ids): sample for sample in samples}.values())


# Of which values.


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

    return _samples(change)


residual_missing = _part("mlp")
mlp_missing = _part("attention")
after_the_norm = _part("norm")


def _from_layer(source: Callable[[int], int]) -> RecordedClient:
    return _layers(lambda layers: {layer: layers[source(layer)] for layer in layers})


one_layer_early = _from_layer(lambda layer: max(layer - 1, 0))
one_layer_late = _from_layer(lambda layer: min(layer + 1, 4))
layers_swapped = _from_layer(lambda layer: {1: 3, 3: 1}.get(layer, layer))
layer_doubled = _from_layer(lambda layer: 2 if layer == 3 else layer)  # noqa: PLR2004 - any other one would do.


@_states
def rows_shifted(states: Array) -> Any:
    return np.roll(states, 1, axis=0)


@_samples
def rows_shifted_in_a_batch(samples: list[Sample]) -> list[Sample]:
    if len(samples) == 1:
        return samples
    return [
        replace(sample, states={layer: np.roll(states, -1, axis=0) for layer, states in sample.states.items()})
        for sample in samples
    ]


@_states
def rows_reversed(states: Array) -> Any:
    return np.ascontiguousarray(states[::-1])


@_states
def zeros(states: Array) -> Any:
    return np.zeros_like(states)


def _row_filled(number: float) -> RecordedClient:
    def change(states: Array) -> Any:
        changed = states.copy()
        changed[len(states) // 2] = number
        return changed

    return _states(change)


one_nan_row = _row_filled(np.nan)
one_zero_row = _row_filled(0.0)


@_states
def first_chunk_only(states: Array) -> Any:
    return states[:CHUNK]


@_states
def last_chunk_only(states: Array) -> Any:
    return states[-(len(states) % CHUNK or CHUNK) :]


@_states
def cached_prefix_empty(states: Array) -> Any:
    hit = (len(states) - 1) // CHUNK * CHUNK
    return np.concatenate([np.zeros_like(states[:hit]), states[hit:]])


@_states
def later_chunks_empty(states: Array) -> Any:
    return np.concatenate([states[:CHUNK], np.zeros_like(states[CHUNK:])])


@_samples
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


@_states
def scaled(states: Array) -> Any:
    return states * np.float32(recorded().config["hidden_size"] ** 0.5)


@_states
def rounded_to_bfloat16(states: Array) -> Any:
    return ((states.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@_states
def rounded_to_float16(states: Array) -> Any:
    return states.astype(np.float16).astype(np.float32)


@_states
def first_row_for_all(states: Array) -> Any:
    return np.ascontiguousarray(np.broadcast_to(states[:1], states.shape))
