"""Tiny checkpoints, written from a seed: real architectures, no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import deepseek_v2, kimi_k25

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.settings import ModelKind

WRITERS: Mapping[ModelKind, Callable[[Path], Path]] = {
    "deepseek-v2": deepseek_v2.write,
    "kimi-k25": kimi_k25.write,
}
