"""Getting states out of the workers: the driver's half of `worker.encode`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clients.contract import EngineSpec, Sample, match_recordings
from .errors import LostTensorsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def decode(encoded: Sequence[Any]) -> torch.Tensor:
    """The tensor that `worker.encode` gave as dtype name, shape and bytes.

    Raises:
        LostTensorsError: the bytes are not there, or are too few: something between the processes ate them.
    """
    import torch  # Here, as the cases import this module where there is none.

    dtype, shape, data = encoded
    if not isinstance(data, bytes | bytearray):
        raise LostTensorsError(
            f"a tensor {dtype} {list(shape)} came back as {type(data).__name__} instead of its bytes: "
            f"serialization between the processes dropped it."
        )
    flat = torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype))
    return flat.reshape(tuple(shape))


def require_tensors(reply: Any) -> list[torch.Tensor]:
    """The tensors of one worker's ``harness_tensors`` reply.

    Raises:
        LostTensorsError: the reply has the shape of one but holds no tensors.
    """
    if isinstance(reply, list) and reply and all(hasattr(item, "shape") for item in reply):
        return reply
    raise LostTensorsError(
        f"expected a list of tensors and got {reply!r:.120}. Between the EngineCore process and the caller, "
        f"vLLM sends a tensor as [dtype, shape, buffer index] and does not rebuild it for a utility call. "
        f"Return bytes, write files in the worker, or set VLLM_ENABLE_V1_MULTIPROCESSING=0."
    )


def merged(replies: Sequence[dict[str, Any]]) -> dict[int, torch.Tensor]:
    """What the ranks replied to ``harness_inputs``, in one: pipeline stages hold different layers."""
    return {int(layer): decode(encoded) for reply in replies for layer, encoded in reply.items()}


def samples(
    spec: EngineSpec, prompts: Sequence[Sequence[int]], replies: Sequence[list[dict[str, Any]] | None]
) -> list[Sample]:
    """The samples of one capture, from what every rank replied to ``harness_take``."""
    recordings: dict[str, dict[str, Any]] = {}
    for reply in replies:
        for recording in reply or []:
            # Pipeline stages hold different layers of the same request.
            known = recordings.setdefault(recording["request_id"], {**recording, "states": {}})
            known["states"].update(recording["states"])
    matched = match_recordings(prompts, list(recordings.values()))
    return [
        Sample(
            token_ids=list(recording["token_ids"]),
            states={layer: decode(recording["states"][str(layer)]) for layer in spec.layers},
        )
        for recording in matched
    ]
