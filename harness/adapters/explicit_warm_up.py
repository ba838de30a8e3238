"""Since 0.27.1: ``initialize_from_config`` no longer warms up (v1/executor/abstract.py)."""

from __future__ import annotations

from typing import ClassVar

from .two_phase import TwoPhase


class ExplicitWarmUp(TwoPhase):
    generation: ClassVar[str] = "explicit-warm-up"

    def warm_up(self) -> None:
        self.executor.compile_or_warm_up_model()
