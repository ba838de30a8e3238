"""Recorded clients that change what the sound one captures, before they give it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.checkpoint import model_config

from .recorded import RecordedClient, RecordedEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.arrays import Array
    from harness.clients.contract import EngineSpec, Sample

# As long as a chunk, or a cached block, that a fault is about.
CHUNK = 16
# Room for any call.
ROWS = 1024


def of_samples(change: Callable[[list[Sample]], list[Sample]]) -> RecordedClient:
    """A client that changes its samples before it gives them."""

    class Changed(RecordedEngine):
        def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
            return change(super().capture(prompts))

    return RecordedClient(Changed)


def changed(sample: Sample, change: Callable[[Array], Any]) -> Sample:
    """A sample with every layer changed."""
    return replace(sample, states={layer: change(states) for layer, states in sample.states.items()})


def of_layers(change: Callable[[dict[int, Array]], dict[Any, Any]]) -> RecordedClient:
    """A client that changes the layers of each sample."""
    return of_samples(lambda samples: [replace(sample, states=change(dict(sample.states))) for sample in samples])


def of_states(change: Callable[[Array], Any]) -> RecordedClient:
    """A client that changes every layer of each sample."""
    return of_samples(lambda samples: [changed(sample, change) for sample in samples])


def in_buffers(count: int) -> RecordedClient:
    """A client whose samples are views of so many buffers, which calls fill in turn, each from its beginning."""

    class Buffered(RecordedEngine):
        def __init__(self, spec: EngineSpec) -> None:
            super().__init__(spec)
            shape = (len(spec.layers), ROWS, model_config(spec.model)["hidden_size"])
            self.buffers = itertools.cycle([np.zeros(shape, np.float32) for _number in range(count)])

        def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
            start, given, buffer = 0, [], next(self.buffers)
            for sample in super().capture(prompts):
                stop = start + len(sample.token_ids)
                for place, states in enumerate(sample.states.values()):
                    buffer[place, start:stop] = states
                views = {layer: buffer[place, start:stop] for place, layer in enumerate(sample.states)}
                given.append(replace(sample, states=views))
                start = stop
            return given

    return RecordedClient(Buffered)
