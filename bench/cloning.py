"""The way of speculators 0.3.0, without what breaks it: clones on the device, which the driver asks for.

As its ``custom_worker.py`` and ``vllm_hidden_states_generator.py`` do it: TP rank 0 keeps the sum of hidden states
and residual of every forward, and replies to ``collective_rpc`` with one CPU tensor a layer once a batch is through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from harness.decoder import decoder_stack, loaded_model
from harness.worker import CaptureExtension

if TYPE_CHECKING:
    from collections.abc import Callable


class CloningExtension(CaptureExtension):
    """Mixed into vLLM's worker class, as what it inherits from."""

    def bench_start(self, layers: list[int]) -> None:
        """Put hooks on these layers, on TP rank 0 alone."""
        worker: Any = self
        self.bench_states: dict[int, list[torch.Tensor]] = {layer: [] for layer in layers}
        if worker.rank == 0:
            stack = decoder_stack(loaded_model(worker.model_runner))
            for layer, kept in self.bench_states.items():
                stack.layers[layer].register_forward_hook(_keep(kept))

    def bench_take(self) -> list[torch.Tensor]:
        """The states since the last call, ``[tokens, hidden_size]`` a layer, and forget them."""
        taken = [torch.cat(kept).cpu() for kept in self.bench_states.values()]
        for kept in self.bench_states.values():
            kept.clear()
        return taken


def _keep(kept: list[torch.Tensor]) -> Callable[..., None]:
    def keep(_module: Any, _inputs: Any, output: tuple[torch.Tensor, torch.Tensor]) -> None:
        hidden, residual = output
        kept.append(hidden + residual)

    return keep
