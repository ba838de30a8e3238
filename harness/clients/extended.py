"""What an engine of ours offers because its workers have `harness.worker.CaptureExtension`."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from harness import delivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from .calls import Calls
    from .contract import Sample


class Extended(abc.ABC):
    """Mixed into an engine whose calls to its workers are `Calls`."""

    _calls: Calls

    @abc.abstractmethod
    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]: ...

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        return self._calls.ask(method, *arguments)

    def activity(self) -> dict[str, int]:
        activity: dict[str, int] = self.ask("harness_activity")[0]
        return activity

    def inputs(self, prompt: Sequence[int]) -> dict[int, torch.Tensor]:
        self.ask("harness_follow_inputs")
        self.capture([prompt])
        return delivery.merged(self.ask("harness_inputs"))
