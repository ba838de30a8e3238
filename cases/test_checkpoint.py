"""Checkpoints: a damaged one is refused before it is loaded, and the suite's own leave no choice to rounding."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.checkpoint import model_config
from harness.errors import CheckpointError
from harness.findings import expect

if TYPE_CHECKING:
    from pathlib import Path

    from harness.shared_engine import SharedEngine

# By how much the chosen experts are ahead: 0.93 of DeepseekV2's logits, 0.15 of KimiK25's scores, which reach 2.
ROUTING_MARGIN = 0.1


def test_routing_is_settled(engine: SharedEngine, reference: dict[str, Any]) -> None:
    """In the reference's forward no token has an expert that it takes by a hair, and all experts are taken."""
    config = model_config(engine.spec.model)
    experts, count = config["n_routed_experts"], config["num_experts_per_tok"]
    for layer in range(config["first_k_dense_replace"], config["num_hidden_layers"]):
        scores = np.concatenate([rows for name, rows in reference.items() if name.endswith(f".{layer}.routing")])
        ordered = np.sort(scores, axis=1)
        margin = float((ordered[:, -count] - ordered[:, -count - 1]).min())
        taken = np.unique(np.argsort(scores, axis=1)[:, -count:])
        expect(
            margin > ROUTING_MARGIN and len(taken) == experts,
            expected=f"layer {layer}: every expert taken, and by more than {ROUTING_MARGIN:g}",
            got=f"experts {taken.tolist()}, by {margin:.2g} and more",
            cause="the checkpoint leaves the choice of experts to rounding: values then differ for no fault of vLLM",
            advice="keep the dimensions for routing apart, and the wishes there (harness/models/deepseek_v2.py)",
        )


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
