"""How much of the suite this machine can run side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# One engine with two workers, and the reference beside it.
MEMORY_PER_GROUP = 6 * 2**30


def jobs(groups: int, wanted: int | None, variables: Mapping[str, str]) -> int:
    """How many engine groups run side by side: as many as there are cores and memory for.

    One where workers are bound to cores by number: two engines would spin on the same ones.
    """
    if wanted is not None:
        return max(1, min(wanted, groups))
    if "|" in variables.get("VLLM_CPU_OMP_THREADS_BIND", ""):
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), _available_memory() // MEMORY_PER_GROUP, groups))


def _available_memory() -> int:
    """Bytes that can be had without swapping: free memory alone leaves out the page cache."""
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
