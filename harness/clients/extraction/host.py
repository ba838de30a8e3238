"""vLLM's example hidden-states connector where there is no accelerator.

Imported by vLLM in place of the connector's own module (``kv_connector_module_path``), in the scheduler's process and
in every worker's. The connector is vLLM's own class; only what its module knows as ``torch`` is ours, and only in
what its copies from the device need. The evidence of an engine names both stand-ins.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import example_hidden_states_connector

__all__ = ["ExampleHiddenStatesConnector"]


class _Done:
    """A stream, or an event on one: a copy between host tensors has been made when the call returns."""

    def __init__(self, *_arguments: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None: ...

    def record(self, *_stream: Any) -> None: ...

    def wait_event(self, _event: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


class _HostTorch:
    """``torch``, but for pinned memory and for streams."""

    cuda = SimpleNamespace(Stream=_Done, Event=_Done, stream=_Done)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def empty_like(tensor: torch.Tensor, *, device: str, pin_memory: bool) -> torch.Tensor:
        del pin_memory
        return torch.empty_like(tensor, device=device)


example_hidden_states_connector.torch = _HostTorch()
ExampleHiddenStatesConnector = example_hidden_states_connector.ExampleHiddenStatesConnector
