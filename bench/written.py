"""Safetensors files by their headers alone: whether they are whole, and what shape the states in them have."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from harness.errors import IncompleteSampleError, ReplyTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PAUSE = 0.002


def header(path: Path) -> dict[str, Any] | None:
    """What a file holds, by name; None while it is shorter than that."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if size < 8 + length or not length:
            return None
        tensors: dict[str, Any] = json.loads(file.read(length))
    tensors.pop("__metadata__", None)
    end = max(tensor["data_offsets"][1] for tensor in tensors.values())
    return tensors if size == 8 + length + end else None


def wait_whole(path: Path, deadline: float) -> None:
    """Wait until a file is whole.

    Raises:
        ReplyTimeoutError: it is not, at ``deadline`` as `time.monotonic` counts.
    """
    while not path.exists() or header(path) is None:
        if time.monotonic() > deadline:
            raise ReplyTimeoutError(f"{path.name} is not whole: writing it stopped, or {path.parent} is slow.")
        time.sleep(_PAUSE)


def check(folder: Path, count: int, shape: Sequence[int]) -> int:
    """A folder holds ``count`` samples, each whole, with states of one shape.

    Returns:
        The bytes of all files.

    Raises:
        IncompleteSampleError: files are missing, too many, cut, or hold other states.
    """
    paths = sorted(folder.rglob("*.safetensors"))
    if len(paths) != count:
        raise IncompleteSampleError(f"{len(paths)} files were written for {count} prompts")
    for path in paths:
        tensors = header(path)
        found = tensors and tensors.get("hidden_states", {}).get("shape")
        if found != list(shape):
            raise IncompleteSampleError(f"{path.name} holds states {found} instead of {list(shape)}")
    return sum(path.stat().st_size for path in paths)
