"""A toy's extraction as the command runs it: its place, and what has to be there afterwards."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import toy_extraction as toy
from safetensors.numpy import load_file

from harness import cli, identity
from harness.extraction import conduct

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAMPLES = 20
WHOLE = sorted(
    [f"{index}.safetensors{end}" for index in range(SAMPLES) for end in ("", ".lock")]
    + ["manifest.json", "samples.jsonl"]
)


class Place:
    """A checkpoint, a file of prompts, and where the samples go."""

    def __init__(self, tmp_path: Path) -> None:
        self.model = toy.checkpoint(tmp_path / "model")
        self.prompts = toy.prompts(tmp_path / "prompts.jsonl", SAMPLES)
        self.output = tmp_path / "out"

    def run(self, *others: str) -> int:
        return cli.main(toy.arguments(self.model, self.prompts, self.output, *others))

    def manifest(self, suffix: str = "") -> dict[str, Any]:
        body: dict[str, Any] = json.loads((self.output / f"manifest{suffix}.json").read_text(encoding="utf-8"))
        return body

    def journal(self, suffix: str = "") -> list[dict[str, Any]]:
        lines = (self.output / f"samples{suffix}.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.output.iterdir()) if self.output.exists() else []

    def digests(self) -> dict[str, str]:
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.output.glob("*.safetensors")
        }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(identity, "environment", lambda: dict(toy.FACTS))
    monkeypatch.setattr(conduct, "CLIENT", "toy_extraction:SOUND")
    return Place(tmp_path)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setattr(conduct, "CLIENT", f"toy_extraction:{name}")


def require_whole(place: Place) -> None:
    """Every sample is there once, with its own values, and nothing else is."""
    assert place.names() == WHOLE
    assert sorted(row["index"] for row in place.journal()) == list(range(SAMPLES))
    for index, line in enumerate(place.prompts.read_text(encoding="utf-8").splitlines()):
        ids = json.loads(line)["prompt_token_ids"]
        held = load_file(place.output / f"{index}.safetensors")
        expected = np.array([[[token * layer + 0.5] * toy.HIDDEN_SIZE for layer in (3, 0)] for token in ids])
        assert held["token_ids"].tolist() == ids
        np.testing.assert_array_equal(held["hidden_states"], expected.astype(np.float32))
    assert place.manifest()["complete"] is True


def require_last(out: str, event: str, code: int, said: str) -> None:
    """The last line is of the end, for a program: all of what stderr says."""
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == (event, code), last
    assert said in last["text"], last
