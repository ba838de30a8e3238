"""Recorded faults that only some calls show: each public name is a client, and an entry of ``catalogue.toml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .changing import changed, in_buffers, of_samples
from .recorded import RecordedClient, RecordedEngine, states_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.arrays import Array
    from harness.clients.contract import Sample

# Where a buffer ends, in rows of a call: more than the batch has.
ROWS = 256


# The number of prompts, and of rows.


@of_samples
def rows_past_a_buffers_end(samples: list[Sample]) -> list[Sample]:
    start, given = 0, []
    for sample in samples:
        whole = max(0, ROWS - start)

        def cut(states: Array, whole: int = whole) -> Array:
            return np.concatenate([states[:whole], np.zeros_like(states[whole:])])

        given.append(changed(sample, cut))
        start += len(sample.token_ids)
    return given


@of_samples
def pairs_lost(samples: list[Sample]) -> list[Sample]:
    return [] if len(samples) == 2 else samples  # noqa: PLR2004 - a pair.


@of_samples
def three_prompts_shifted(samples: list[Sample]) -> list[Sample]:
    if len(samples) != 3:  # noqa: PLR2004 - as many as are called three.
        return samples
    return [changed(sample, lambda states: np.roll(states, 1, axis=0)) for sample in samples]


# Prompts that are equal.


def _of_equal_ones(change: Callable[[Array], Array]) -> RecordedClient:
    """A client that changes the samples of prompts that are given twice in a call."""

    def equal_ones(samples: list[Sample]) -> list[Sample]:
        ids = [sample.token_ids for sample in samples]
        return [changed(each, change) if ids.count(each.token_ids) > 1 else each for each in samples]

    return of_samples(equal_ones)


equal_prompts_share_rows = _of_equal_ones(lambda states: np.concatenate([states, states]))
equal_prompts_empty = _of_equal_ones(np.zeros_like)

# Later calls than the first.


def _of_later_calls(change: Callable[[Sample], Sample]) -> RecordedClient:
    """A client that changes its samples from the second call on."""

    class Later(RecordedEngine):
        first = True

        def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
            samples = super().capture(prompts)
            first, self.first = self.first, False
            return samples if first else [change(sample) for sample in samples]

    return RecordedClient(Later)


dtype_of_later_calls = _of_later_calls(
    lambda sample: changed(sample, lambda states: np.asfortranarray(states, np.float64))
)
layers_of_later_calls = _of_later_calls(lambda sample: replace(sample, states=dict(sorted(sample.states.items()))))
two_buffers_in_turn = in_buffers(2)

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
