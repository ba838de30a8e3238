"""What is to be known of a checkpoint from its files alone, before vLLM is imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import CheckpointError


def model_config(model: str) -> dict[str, Any]:
    """The text part of a checkpoint's ``config.json``.

    Raises:
        CheckpointError: it is missing, is not JSON, or lacks the sizes that every check needs.
    """
    path = Path(model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}. Give the folder of a checkpoint.") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON ({error}). Fetch or write the checkpoint again.") from error
    text = config.get("text_config", config) if isinstance(config, dict) else None
    if not isinstance(text, dict):
        raise CheckpointError(f"{path} is not a model's config. Give the folder of a checkpoint.")
    for key in ("num_hidden_layers", "hidden_size", "vocab_size"):
        if not isinstance(text.get(key), int):
            raise CheckpointError(f"{path} lacks {key}. Fetch or write the checkpoint again.")
    return text


def check_weights(model: str) -> None:
    """Every safetensors file is as long as its header says.

    vLLM finds a truncated file too, but only after the workers are up, and says so from one of them.

    Raises:
        CheckpointError: none is there, or one is truncated.
    """
    files = sorted(Path(model).glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{model} holds no *.safetensors. Give the folder of a checkpoint.")
    for path in files:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if length < size else b""
        try:
            tensors = json.loads(header)
            end = max(row["data_offsets"][1] for name, row in tensors.items() if name != "__metadata__")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{path} has no readable safetensors header: it is corrupted or truncated. Fetch it again."
            ) from error
        if 8 + length + end != size:
            raise CheckpointError(
                f"{path} is {size} bytes and its header promises {8 + length + end}. Fetch it again."
            )
