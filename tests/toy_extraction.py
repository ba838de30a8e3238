"""A toy of an extracting engine, and what it is run on: files as the real one writes them, and no vLLM behind them.

As a program (``python toy_extraction.py CLIENT MODEL PROMPTS OUTPUT``), an extraction with one of them, as the
command runs it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import cli, identity
from harness.errors import DeliveryError
from harness.extraction import conduct
from harness.extraction.feed import announced
from harness.extraction.jobs import Delivered, Job, Progress
from harness.extraction.layouts import LAYOUTS, Form, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.clients.contract import EngineSpec

HIDDEN_SIZE = 4
VOCABULARY = 50
LONGEST = 32
FACTS = {"distribution": "vllm-toy", "version": "1.0", "release": None}
# An advance delivers so many.
BATCH = 3


class Engine:
    """Delivers `BATCH` samples an advance, and nothing goes wrong.

    A row holds its token's id times the layer's, plus a half, in float32.
    """

    pause = 0.0

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self._waiting: deque[Job] = deque()

    def start(self, folder: str, layout: str) -> None:
        self._folder, self._layout = Path(folder), LAYOUTS[layout]

    def add(self, jobs: Sequence[Job]) -> None:
        self._waiting += jobs

    def advance(self, seconds: float) -> Progress:
        del seconds
        count = min(BATCH, len(self._waiting))
        return self._progress([self._deliver(self._waiting.popleft()) for _ in range(count)])

    def finish(self) -> Progress:
        return self._progress([])

    def _progress(self, delivered: list[Delivered]) -> Progress:
        return Progress(
            delivered=tuple(delivered),
            waiting=len(self._waiting),
            tokens=sum(one.tokens for one in delivered),
            bytes=sum(one.bytes for one in delivered),
            stalled=0.0,
        )

    def _deliver(self, job: Job) -> Delivered:
        form = Form(layers=len(self.spec.layers), hidden_size=HIDDEN_SIZE, dtype="float32")
        _index, token_ids, mask = announced(job)
        text = Text(token_ids=token_ids, loss_mask=mask)
        values = [
            token * layer + 0.5 for token in job.token_ids for layer in self.spec.layers for _ in range(HIDDEN_SIZE)
        ]
        final = self._folder / self._layout.file(job.index)
        partial = final.with_name(f"{final.name}.partial")
        with partial.open("wb") as file:
            file.write(self._layout.head(form, text))
            file.flush()
            time.sleep(self.pause)
            file.write(array("f", values).tobytes())
        self._layout.finish(partial, final, form, text)
        return Delivered(
            index=job.index,
            file=final.name,
            tokens=len(job.token_ids),
            bytes=final.stat().st_size,
            rank=job.index % 2,
        )

    def close(self) -> None: ...


class Slow(Engine):
    pause = 0.01


class Dying(Engine):
    """Its process ends in the middle of a file."""

    def _deliver(self, job: Job) -> Delivered:
        if job.index == 2 * BATCH:
            (self._folder / "6.safetensors.partial").write_bytes(b"half")
            os._exit(3)
        return super()._deliver(job)


class Full(Engine):
    """The disk is full after some samples."""

    def advance(self, seconds: float) -> Progress:
        if self._waiting and self._waiting[0].index >= 2 * BATCH:
            raise DeliveryError("no space left.")
        return super().advance(seconds)


class Forgetful(Engine):
    """Says that it is done, and one sample never came."""

    def add(self, jobs: Sequence[Job]) -> None:
        super().add([job for job in jobs if job.index != 1])


class Stuttering(Engine):
    """Delivers a sample twice."""

    def advance(self, seconds: float) -> Progress:
        self._waiting.appendleft(self._waiting[0])
        return super().advance(seconds)


class Client:
    """Opens one kind of engine."""

    name = "toy"

    def __init__(self, engine: type[Engine]) -> None:
        self._engine = engine

    def refuses(self, spec: EngineSpec) -> None: ...

    def open(self, spec: EngineSpec) -> Engine:
        return self._engine(spec)


SOUND, SLOW, DYING, FULL = Client(Engine), Client(Slow), Client(Dying), Client(Full)
FORGETFUL, STUTTERING = Client(Forgetful), Client(Stuttering)


def checkpoint(folder: Path, **config: Any) -> Path:
    """A config, and weights of one tensor."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"num_hidden_layers": 5, "hidden_size": HIDDEN_SIZE, "vocab_size": VOCABULARY}
    text = json.dumps({**sizes, "max_position_embeddings": LONGEST + 1, **config})
    (folder / "config.json").write_text(text, encoding="utf-8")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return folder


def prompts(path: Path, count: int = 20) -> Path:
    """A file of prompts of 1 to 9 tokens."""
    rows = [
        {"prompt_token_ids": [(number * 7 + place) % VOCABULARY for place in range(1 + number % 9)]}
        for number in range(count)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def arguments(model: Path, given: Path, output: Path, *others: str) -> list[str]:
    """The command line of an extraction."""
    return [
        *("extract", "--model", str(model), "--layers", "3,0", "--prompts", str(given), "--output", str(output)),
        *("--no-gate", *others),
    ]


if __name__ == "__main__":
    client, *paths = sys.argv[1:]
    identity.environment = lambda: dict(FACTS)
    conduct.CLIENT = client
    model, given, output = map(Path, paths)
    sys.exit(cli.main(arguments(model, given, output)))
