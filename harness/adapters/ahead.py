"""The scheduler loop with a batch on its way before the last one is accounted for.

So a worker has its next batch when it is done with one, where `Adapter.step` leaves it idle while the driver accounts
and schedules. It is what `EngineCore.step_with_batch_queue` does (v1/engine/core.py, 0.11.0 to 0.32.0) for stages and
for asynchronous scheduling, with vLLM's ordinary scheduler, which knows batches that are under way.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Adapter

# As `max_concurrent_batches` with asynchronous scheduling and no stages (v1/executor/multiproc_executor.py, 0.11.0 to
# 0.22.1, and config/vllm.py, 0.23.0 to 0.32.0).
DEPTH = 2


class Ahead:
    """The batches of one adapter that are under way; while there are any, nothing else steps it."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._under_way: deque[tuple[Any, Callable[[], Any]]] = deque()

    def busy(self) -> bool:
        """As `Adapter.busy`; or batches are under way."""
        return bool(self._under_way) or self._adapter.busy()

    def step(self) -> int:
        """Begin a batch and, if `DEPTH` are under way then or nothing could be scheduled, account for the oldest one.

        Returns:
            How many tokens the one that was accounted for had; 0 if none was.
        """
        scheduler = self._adapter.scheduler
        if self._adapter.busy():
            scheduled = scheduler.schedule()
            self._under_way.append((scheduled, self._adapter.begin(scheduled)))
            if scheduled.total_num_scheduled_tokens and len(self._under_way) < DEPTH:
                return 0
        scheduled, output = self._under_way.popleft()
        scheduler.update_from_output(scheduled, output())
        return int(scheduled.total_num_scheduled_tokens)
