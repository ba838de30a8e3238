"""Recorded clients that change what the sound one captures, before they give it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .recorded import RecordedClient, RecordedEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.arrays import Array
    from harness.clients.contract import Sample

# As long as a chunk, or a cached block, that a fault is about.
CHUNK = 16


def of_samples(change: Callable[[list[Sample]], list[Sample]]) -> RecordedClient:
    """A client that changes its samples before it gives them."""

    class Changed(RecordedEngine):
        def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
            return change(super().capture(prompts))

    return RecordedClient(Changed)


def of_layers(change: Callable[[dict[int, Array]], dict[Any, Any]]) -> RecordedClient:
    """A client that changes the layers of each sample."""
    return of_samples(lambda samples: [replace(sample, states=change(dict(sample.states))) for sample in samples])


def of_states(change: Callable[[Array], Any]) -> RecordedClient:
    """A client that changes every layer of each sample."""
    return of_layers(lambda layers: {layer: change(states) for layer, states in layers.items()})
