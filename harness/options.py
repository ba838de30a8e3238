"""What a run of the suite is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from . import terminal

if TYPE_CHECKING:
    from pathlib import Path

    from .releases import Device
    from .settings import ModelKind


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line of ``harness check`` says."""

    clients: tuple[str, ...]
    device: Device
    tensor_parallel_sizes: tuple[int, ...]
    model_kind: ModelKind | None
    keyword: str
    evidence: Path | None
    update_snapshots: bool
    jobs: int | None
    as_json: bool
    snapshots_of: str | None = None
    pipeline_parallel_size: int = 1
    executor_backend: Literal["ray"] | None = None

    @property
    def on_request(self) -> bool:
        """Whether engines are asked for that the suite opens only on request."""
        return self.pipeline_parallel_size > 1 or self.executor_backend is not None

    @property
    def own_engines(self) -> bool:
        """Whether the engines, or what they are held to, are others than the suite has for this vLLM."""
        asked = self.clients or self.tensor_parallel_sizes or self.model_kind or self.snapshots_of or self.on_request
        return bool(asked)

    @property
    def whole(self) -> bool:
        """Whether nothing is left out that the suite has for this vLLM."""
        return not (self.own_engines or self.keyword)

    def say(self, line: str) -> None:
        """Tell how the run goes on: beside the evidence, where that is printed."""
        terminal.say(line, as_json=self.as_json)
