"""How much of the suite this machine can run side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .settings import Group

# A worker, and a host with the reference beside it.
MEMORY_OF_A_PROCESS = 2 * 2**30


def jobs(groups: Sequence[Group], wanted: int | None, variables: Mapping[str, str]) -> int:
    """How many engine groups run side by side: as many as there are cores and memory for.

    One where workers are bound to cores by number: two engines would spin on the same ones.
    """
    if wanted is not None:
        return max(1, min(wanted, len(groups)))
    if "|" in variables.get("VLLM_CPU_OMP_THREADS_BIND", ""):
        return 1
    largest = MEMORY_OF_A_PROCESS * (1 + max((group.setting.ranks for group in groups), default=1))
    return max(1, min(len(os.sched_getaffinity(0)), _available_memory() // largest, len(groups)))


def gpus() -> int:
    """How many GPUs torch sees here.

    Raises:
        EnvironmentUnusableError: none.
    """
    import torch  # Here, as nothing else of the command needs it before an engine boots.

    count: int = torch.cuda.device_count()
    if not count:
        raise EnvironmentUnusableError(
            f"torch {torch.__version__} sees no GPU: look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, or leave out "
            f"--device cuda."
        )
    return count


def _available_memory() -> int:
    """Bytes that can be had without swapping: free memory alone leaves out the page cache."""
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
