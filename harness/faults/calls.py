"""Recorded faults that only some calls show: each public name is a client, and an entry of ``catalogue.toml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.checkpoint import model_config

from .changing import of_samples
from .recorded import RecordedClient, RecordedEngine, states_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.arrays import Array
    from harness.clients.contract import EngineSpec, Sample

# Where a buffer ends, in rows of a call: more than the batch has.
ROWS = 256


def _changed(sample: Sample, change: Callable[[Array], Array]) -> Sample:
    return replace(sample, states={layer: change(states) for layer, states in sample.states.items()})


# The number of prompts, and of rows.


@of_samples
def rows_past_a_buffers_end(samples: list[Sample]) -> list[Sample]:
    start, given = 0, []
    for sample in samples:
        whole = max(0, ROWS - start)

        def cut(states: Array, whole: int = whole) -> Array:
            return np.concatenate([states[:whole], np.zeros_like(states[whole:])])

        given.append(_changed(sample, cut))
        start += len(sample.token_ids)
    return given


@of_samples
def pairs_lost(samples: list[Sample]) -> list[Sample]:
    return [] if len(samples) == 2 else samples  # noqa: PLR2004 - a pair.


@of_samples
def three_prompts_shifted(samples: list[Sample]) -> list[Sample]:
    if len(samples) != 3:  # noqa: PLR2004 - as many as are called three.
        return samples
    return [_changed(sample, lambda states: np.roll(states, 1, axis=0)) for sample in samples]


# Prompts that are equal.


def _of_equal_ones(change: Callable[[Array], Array]) -> RecordedClient:
    """A client that changes the samples of prompts that are given twice in a call."""

    def changed(samples: list[Sample]) -> list[Sample]:
        ids = [sample.token_ids for sample in samples]
        return [_changed(each, change) if ids.count(each.token_ids) > 1 else each for each in samples]

    return of_samples(changed)


equal_prompts_share_rows = _of_equal_ones(lambda states: np.concatenate([states, states]))
equal_prompts_empty = _of_equal_ones(np.zeros_like)

# Later calls than the first.


class _Calls(RecordedEngine):
    """Knows which call it is in, the first being 1."""

    number = 0

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        self.number += 1
        return super().capture(prompts)


class _Widened(_Calls):
    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        samples = super().capture(prompts)
        if self.number == 1:
            return samples
        return [_changed(sample, lambda states: np.asfortranarray(states, np.float64)) for sample in samples]


class _InModelOrder(_Calls):
    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        samples = super().capture(prompts)
        if self.number == 1:
            return samples
        return [replace(sample, states=dict(sorted(sample.states.items()))) for sample in samples]


class _BuffersInTurn(_Calls):
    """Samples are views of two buffers, which calls fill in turn."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.buffers = np.zeros((2, len(spec.layers), 2048, model_config(spec.model)["hidden_size"]), np.float32)

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        start, given = 0, []
        for sample in super().capture(prompts):
            stop = start + len(sample.token_ids)
            buffer = self.buffers[self.number % 2, :, start:stop]
            for place, states in enumerate(sample.states.values()):
                buffer[place] = states
            given.append(replace(sample, states={layer: buffer[at] for at, layer in enumerate(sample.states)}))
            start = stop
        return given


dtype_of_later_calls = RecordedClient(_Widened)
layers_of_later_calls = RecordedClient(_InModelOrder)
two_buffers_in_turn = RecordedClient(_BuffersInTurn)

# Layers that were asked for, of those that there are.


class _ByPlace(RecordedEngine):
    """Takes the layer's id for its place among what was captured, in the model's order."""

    def samples(self, prompts: Sequence[Sequence[int]], replies: list[Any]) -> list[Sample]:
        return [self._misplaced(sample) for sample in super().samples(prompts, replies)]

    def _misplaced(self, sample: Sample) -> Sample:
        captured = [sample.states[layer] for layer in sorted(sample.states)]
        states = {layer: captured[min(layer, len(captured) - 1)] for layer in sample.states}
        return replace(sample, states=states)


class _Everything(RecordedEngine):
    def samples(self, prompts: Sequence[Sequence[int]], replies: list[Any]) -> list[Sample]:
        return [
            replace(sample, states=dict(sorted(states_of(sample.token_ids).items())))
            for sample in super().samples(prompts, replies)
        ]


id_taken_for_a_place = RecordedClient(_ByPlace)
every_layer_given = RecordedClient(_Everything)
