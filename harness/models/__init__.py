"""Tiny checkpoints, written from a seed: real architectures, no network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from . import deepseek_v2, kimi_k25

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.settings import ModelKind


class Writer(Protocol):
    def __call__(self, folder: Path, *, seed: int = 0, dtype: str = "float32", ranks: int = 2) -> Path: ...


WRITERS: Mapping[ModelKind, Writer] = {
    "deepseek-v2": deepseek_v2.write,
    "kimi-k25": kimi_k25.write,
}
