"""Where a model keeps its decoder layers. Imported by worker processes: the standard library only."""

from __future__ import annotations

from typing import Any


def decoder_stack(model: Any) -> Any:
    """The module that holds the decoder ``layers``, found by structure: DeepSeek V2 and V3, Kimi, Llama-like.

    Raises:
        RuntimeError: no module on the way down has ``layers``; the message names the classes passed.
    """
    path = [type(model).__name__]
    node = model.get_language_model() if hasattr(model, "get_language_model") else model
    while not hasattr(node, "layers"):
        inner = getattr(node, "model", None) or getattr(node, "language_model", None)
        if inner is None:
            raise RuntimeError(f"no decoder layers found below {' > '.join(path)}")
        node = inner
        path.append(type(node).__name__)
    return node


def loaded_model(runner: Any) -> Any:
    """The model that a runner runs, out of what vLLM wraps around it."""
    return runner.get_model() if hasattr(runner, "get_model") else runner.model
