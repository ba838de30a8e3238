"""The other layer convention: what goes into each decoder layer, and into the final norm.

vLLM's own extraction counts so: id k is the input of layer k, and the number of layers is the last one's output.
Worker code, like `harness.worker`: the standard library and torch only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Inputs:
    """Hooks on a decoder stack that keep the inputs of the last forward, until they are taken."""

    def __init__(self, stack: Any) -> None:
        self.last: dict[int, torch.Tensor] = {}
        # A layer is called with positions, hidden states and residual; the norm without positions.
        places = [(number, layer, 1) for number, layer in enumerate(stack.layers)]
        self._hooks = [
            module.register_forward_pre_hook(self._hook(number, first), with_kwargs=True)
            for number, module, first in [*places, (len(stack.layers), stack.norm, 0)]
        ]

    def _hook(self, number: int, first: int) -> Any:
        def keep(_module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            hidden, residual = (*arguments, *named.values())[first : first + 2]
            self.last[number] = hidden.clone() if residual is None else hidden + residual

        return keep

    def take(self) -> dict[int, torch.Tensor]:
        """The residual stream before each layer, ``[tokens, hidden_size]``, and after the last; hooks are removed."""
        for hook in self._hooks:
            hook.remove()
        return self.last
