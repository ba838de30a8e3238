"""Recorded faults in which states are given, and of which prompts: each name is in ``catalogue.toml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .changing import CHUNK, of_layers, of_samples, of_states

if TYPE_CHECKING:
    from harness.arrays import Array
    from harness.clients.contract import Sample

# How many, of what structure.


@of_layers
def layer_taken_for_all(layers: dict[int, Array]) -> dict[Any, Any]:
    return dict(enumerate(layers[0]))


@of_states
def one_list_too_deep(states: Array) -> Any:
    return states[None]


@of_states
def lost_tensors(states: Array) -> Any:
    return ["float32", list(states.shape), 1]


@of_states
def hidden_size_divided(states: Array) -> Any:
    return np.ascontiguousarray(states[:, : states.shape[1] // 2])


@of_states
def transposed(states: Array) -> Any:
    return np.ascontiguousarray(states.T)


@of_states
def column_major(states: Array) -> Any:
    return np.asfortranarray(states)


@of_states
def half_precision(states: Array) -> Any:
    return states.astype(np.float16)


@of_states
def last_row_dropped(states: Array) -> Any:
    return states[:-1]


@of_states
def generated_row_kept(states: Array) -> Any:
    return np.concatenate([states, states[-1:] + 1])


@of_states
def padding_kept(states: Array) -> Any:
    return np.concatenate([states, np.zeros((-len(states) % CHUNK or CHUNK, states.shape[1]), dtype=np.float32)])


@of_states
def last_row_only(states: Array) -> Any:
    return states[-1:]


@of_samples
def whole_batch_in_each(samples: list[Sample]) -> list[Sample]:
    together = {layer: np.concatenate([sample.states[layer] for sample in samples]) for layer in samples[0].states}
    return [replace(sample, states=together) for sample in samples]


@of_layers
def layer_missing(layers: dict[int, Array]) -> dict[Any, Any]:
    return {layer: states for layer, states in layers.items() if layer != max(layers)}


@of_layers
def final_states_came_along(layers: dict[int, Array]) -> dict[Any, Any]:
    return {**layers, max(layers) + 1: layers[max(layers)]}


@of_layers
def layer_ids_as_text(layers: dict[int, Array]) -> dict[Any, Any]:
    return {str(layer): states for layer, states in layers.items()}


@of_layers
def computed_order(layers: dict[int, Array]) -> dict[Any, Any]:
    return dict(sorted(layers.items()))


# Which prompt's.


@of_samples
def one_sample_missing(samples: list[Sample]) -> list[Sample]:
    return samples[:-1]


@of_samples
def one_sample_doubled(samples: list[Sample]) -> list[Sample]:
    return [samples[0], *samples]


@of_samples
def prompts_swapped(samples: list[Sample]) -> list[Sample]:
    return [*samples[1::-1], *samples[2:]]


@of_samples
def sorted_by_length(samples: list[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda sample: len(sample.token_ids))


@of_samples
def rows_sorted_by_length(samples: list[Sample]) -> list[Sample]:
    by_length = sorted(samples, key=lambda sample: len(sample.token_ids))
    return [replace(sample, states=other.states) for sample, other in zip(samples, by_length, strict=True)]


@of_samples
def token_ids_changed(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, token_ids=[*sample.token_ids[:-1], 0]) for sample in samples]


@of_samples
def special_token_added(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, token_ids=[0, *sample.token_ids]) for sample in samples]


@of_samples
def prompt_cut(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, token_ids=sample.token_ids[:CHUNK]) for sample in samples]


@of_samples
def equal_prompts_merged(samples: list[Sample]) -> list[Sample]:
    return list({tuple(sample.token_ids): sample for sample in samples}.values())
