"""speculators' worker extension, for workers in which transformers 5 keeps it from being imported by its own name."""

from __future__ import annotations

from .speculators_patches import name_torch

name_torch()

from speculators.data_generation.custom_worker import HiddenStatesWorkerExtension  # noqa: E402 - it needs the name.

__all__ = ["HiddenStatesWorkerExtension"]
