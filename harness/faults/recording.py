"""A real capture as a file: what our executor client gave on one release, and what Hugging Face says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open
from safetensors.numpy import save_file

from harness.arrays import array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.arrays import Array
    from harness.clients.contract import Sample

FILE = Path(__file__).with_name("recording.safetensors")
# In bfloat16: whether what is recognised in float32 is recognised there too.
ROUNDED = Path(__file__).with_name("recording-bfloat16.safetensors")
# The parts beside the states (`recognition.PARTS`) are kept for this prompt alone: they are most of a reference.
WITH_PARTS = 0


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One capture of the suite's prompts: those of ``batch``, and ``further`` sets by name, which may be none.

    ``states`` are ours, by prompt and layer, of all sets in turn; ``reference`` is as in ``reference.safetensors``,
    of the batch alone: what is recorded of further sets is its own reference, as they are large. ``steps`` is what
    `RawEngine.steps` gave for each ``skip``; ``facts`` is what `identity.environment` said.
    """

    facts: dict[str, Any]
    config: dict[str, Any]
    prompts: list[list[int]]
    further: dict[str, list[list[int]]]
    identity: dict[str, Any]
    steps: list[list[dict[str, str]]]
    states: list[dict[int, Array]]
    reference: dict[str, Array]

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self.states[0])

    @property
    def sets(self) -> dict[str, list[list[int]]]:
        """All prompts, as `prompts.sets` has them."""
        return {"batch": self.prompts, **self.further}

    @property
    def references(self) -> dict[str, Array]:
        """Of all sets, ``{"<set>.<prompt>.<layer>": [n, hidden_size]}``."""
        further = [f"{name}.{number}" for name, members in self.further.items() for number in range(len(members))]
        ours = zip(further, self.states[len(self.prompts) :], strict=True)
        return {
            **{f"batch.{name}": states for name, states in self.reference.items()},
            **{f"{name}.{layer}": states for name, layers in ours for layer, states in layers.items()},
        }


def write(path: Path, notes: Mapping[str, Any], samples: Sequence[Sample], reference: Mapping[str, Array]) -> None:
    """Write a recording; ``notes`` are its fields that are no arrays."""
    kept = {
        name: states
        for name, states in reference.items()
        if name.count(".") == 1 or name.endswith(".routing") or name.startswith(f"{WITH_PARTS}.")
    }
    ours = {
        f"ours.{number}.{layer}": array(states)
        for number, sample in enumerate(samples)
        for layer, states in sample.states.items()
    }
    save_file(
        {**ours, **{f"reference.{name}": states for name, states in kept.items()}},
        str(path),
        metadata={name: json.dumps(value) for name, value in notes.items()},
    )


def read(path: Path | None = None) -> Recording:
    path = path or FILE
    with safe_open(path, framework="numpy") as file:
        notes = {name: json.loads(text) for name, text in file.metadata().items()}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping.
    layers = notes.pop("layers")
    count = len(notes["prompts"]) + sum(map(len, notes["further"].values()))
    return Recording(
        **notes,
        states=[{layer: arrays[f"ours.{number}.{layer}"] for layer in layers} for number in range(count)],
        reference={
            name.removeprefix("reference."): states
            for name, states in arrays.items()
            if name.startswith("reference.")
        },
    )
