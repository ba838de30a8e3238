"""A run without a model: rows are made up of their index and position, so a file tells where each came from."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.extraction.layouts import LAYOUTS, Form, Layout, Text
from harness.extraction.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORM = Form(layers=2, hidden_size=8, dtype="float32")
LAYERS = (7, 3)
PAGE = 4096


def text(length: int, index: int = 0, *, mask: bool = False) -> Text:
    ids = array("q", range(100 * index, 100 * index + length)).tobytes()
    return Text(token_ids=ids, loss_mask=array("q", [1] * length).tobytes() if mask else None)


def states(index: int, length: int, start: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    rows = 1.0 + index * 10_000 + np.arange(start, start + length, dtype=np.float32)
    return rows[:, None, None] * np.ones((1, FORM.layers, FORM.hidden_size), np.float32)


def nothing() -> None:
    """Ready at once."""


class Delivering:
    """A run of one rank, its memory, and what plays the forward."""

    def __init__(
        self,
        folder: Path,
        *,
        memory: int = 16 * PAGE,
        piece: int = PAGE,
        threads: int = 3,
        layout: Layout = LAYOUTS["connector"],
    ) -> None:
        self.folder = folder
        self.memory = bytearray(memory)
        self.run = Run(
            folder=folder,
            layout=layout,
            form=FORM,
            layers=LAYERS,
            memory=memoryview(self.memory),
            piece_bytes=piece,
            threads=threads,
        )

    def forward(
        self,
        index: int,
        start: int,
        count: int,
        *,
        ready: Callable[[], None] = nothing,
        flags: dict[int, int] | None = None,
    ) -> None:
        """Rows of a sample are computed; ``flags`` are those of bad ones, by their place among the rows' flags."""

        def copy(first: int, rows: int, place: int) -> Callable[[], None]:
            data = states(index, rows, start + first).tobytes()
            marks = bytearray(rows * FORM.layers)
            for at, flag in (flags or {}).items():
                if 0 <= at - first * FORM.layers < len(marks):
                    marks[at - first * FORM.layers] = flag
            self.memory[place : place + len(data) + len(marks)] = data + marks
            return ready

        self.run.submit(index, start, count, copy)

    def sample(self, index: int, length: int) -> None:
        """One sample from beginning to end, in one forward."""
        self.run.announce(index, text(length, index))
        self.run.begins(index, text(length, index).token_ids)
        self.forward(index, 0, length)
        self.run.ends(index)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())
