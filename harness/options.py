"""What a run of the suite is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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
    settings: tuple[str, ...] = ()
    """Only these, by the names of `settings.named`; those that the suite has if there are none."""
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """As `Run.only`."""

    @property
    def whole(self) -> bool:
        """Whether nothing is left out that the suite has for this vLLM."""
        return not (self.keyword or self.snapshots_of or self.only or self.chooses_engines)

    @property
    def chooses_engines(self) -> bool:
        """Whether engines are left out, or others opened, than those that the suite has for this vLLM."""
        return bool(self.clients or self.tensor_parallel_sizes or self.model_kind or self.settings)

    def say(self, line: str) -> None:
        """Tell how the run goes on: beside the evidence, where that is printed."""
        terminal.say(line, as_json=self.as_json)
