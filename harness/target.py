"""What the gate reads from the config of the model that a run is for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoint import model_config
from .errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Under which names configs count their experts.
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The facts of a model's ``config.json`` that decide what a run needs.

    ``dtype`` is what the checkpoint is stored in, ``quantised`` by which method, if it is; ``wrapped``: its decoder
    stack is inside a multimodal model.
    """

    architectures: tuple[str, ...]
    num_layers: int
    hidden_size: int
    heads: int | None
    experts: int
    wrapped: bool
    dtype: str | None
    quantised: str | None
    max_positions: int | None


def read(model: str) -> Target:
    """The facts of a model.

    Args:
        model: its folder, or the name of one that is in the Hugging Face cache: nothing is fetched.

    Raises:
        UsageError: it has no config that can be read.
    """
    folder = _folder(model)
    try:
        text = model_config(str(folder))
        whole = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return of_config(whole, text)
    except CheckpointError as error:
        raise UsageError(f"--model {model}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"--model {model}: its config.json is not a model's: {error}. Fetch it again.") from error


def of_config(whole: Mapping[str, Any], text: Mapping[str, Any]) -> Target:
    """The facts of a config, and of its part about text: the same, if nothing wraps it."""
    quantised = whole.get("quantization_config") or text.get("quantization_config")
    names = [each.get(key) for each in (text, whole) for key in ("torch_dtype", "dtype")]
    return Target(
        architectures=tuple(map(str, whole.get("architectures") or ())),
        num_layers=text["num_hidden_layers"],
        hidden_size=text["hidden_size"],
        heads=text.get("num_attention_heads"),
        experts=next((int(text[key]) for key in _EXPERTS if text.get(key)), 0),
        wrapped="text_config" in whole or "vision_config" in whole,
        dtype=next((str(name).removeprefix("torch.") for name in names if name), None),
        quantised=str(quantised.get("quant_method", "quantised")) if quantised else None,
        max_positions=text.get("max_position_embeddings"),
    )


def _folder(model: str) -> Path:
    folder = Path(model)
    if folder.exists() or model.count("/") != 1:
        return folder
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return folder
    try:
        cached = try_to_load_from_cache(model, "config.json")
    except ValueError:  # A path, as /nowhere: no repository may have that name.
        return folder
    return Path(cached).parent if isinstance(cached, str) else folder
