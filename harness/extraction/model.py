"""What an extraction has to know of a checkpoint before vLLM sees it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from .prompt_line import Tokenize


def digests(model: str) -> dict[str, str]:
    """SHA-256 of ``config.json``, and of the name, size and header of every safetensors file.

    Not of the weights themselves: of 540 GB, that would take as long as loading them.
    """
    folder = Path(model)
    weights = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            length = file.read(8)
            header = file.read(int.from_bytes(length, "little"))
        weights.update(json.dumps([path.name, path.stat().st_size]).encode() + header)
    return {
        "config_sha256": hashlib.sha256((folder / "config.json").read_bytes()).hexdigest(),
        "weights_sha256": weights.hexdigest(),
    }


def multimodal(model: str) -> bool:
    """Whether the text model is a part of another, whose processor vLLM then loads with the tokenizer."""
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    return "text_config" in config


def tokenizer(model: str, *, trust_remote_code: bool) -> Tokenize:
    """The checkpoint's own, loaded when the first text comes; special tokens are added as vLLM adds them.

    The function that this gives raises `UsageError` where the folder has none that can be loaded.
    """
    loaded: list[Tokenize] = []

    def tokenize(text: str) -> list[int]:
        if not loaded:
            loaded.append(_load(model, trust_remote_code=trust_remote_code))
        return loaded[0](text)

    return tokenize


def _load(model: str, *, trust_remote_code: bool) -> Tokenize:
    os.environ["HF_HUB_OFFLINE"] = "1"  # Read when it is imported. A name that is missing here is not fetched.
    try:
        from transformers import AutoTokenizer

        encode = AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code).encode
    except Exception as error:  # The checkpoint's own code may raise anything.
        raise UsageError(
            f"the prompts hold text, and {model} has no tokenizer that can be loaded here ({type(error).__name__}: "
            f"{error}). Put its files there, or give token ids; a tokenizer with code of its own needs "
            f"--trust-remote-code."
        ) from error
    return lambda text: list(encode(text))
