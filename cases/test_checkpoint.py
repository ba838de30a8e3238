"""A damaged checkpoint is refused before anything is loaded."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harness.errors import CheckpointError
from harness.findings import expect

if TYPE_CHECKING:
    from pathlib import Path

    from harness.shared_engine import SharedEngine


@pytest.mark.parametrize("damage", ["truncated", "corrupted", "no-weights", "no-config"])
def test_damaged_checkpoint_is_refused(engine: SharedEngine, tmp_path: Path, damage: str) -> None:
    """Truncated or corrupted weights, or a missing file: `CheckpointError`, not a worker's traceback."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(engine.spec.model, folder)
    weights = folder / "model.safetensors"
    if damage == "truncated":
        with weights.open("r+b") as file:
            file.truncate(weights.stat().st_size // 2)
    elif damage == "corrupted":
        with weights.open("r+b") as file:
            file.write(b"\xff" * 64)
    elif damage == "no-weights":
        weights.unlink()
    else:
        (folder / "config.json").unlink()
    got = engine.open_refused(replace(engine.spec, model=str(folder)), CheckpointError)
    expect(
        not got,
        expected=f"a checkpoint that is {damage} to be refused with CheckpointError",
        got=got,
        cause="vLLM finds it in a worker, after minutes of loading, or not at all",
        advice="compare each file's length with its header before booting",
    )
