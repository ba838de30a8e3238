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
    """The batches of one adapter that are under way; while there are any, nothing else steps it.

    Workers reply in turn (`async_output_busy_loop`, v1/executor/multiproc_executor.py, 0.11.0 to 0.32.0), so a call
    that waits for its reply waits for the batches before it too, and the device then has none. `follow` lets it come
    when they do.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        # The oldest first, and that is a batch: what was scheduled, and what waits for its output. None and what
        # hears the reply are a call.
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
        self._hear()  # Where a batch has failed, what is behind it is still to come.
        if self._adapter.busy():
            scheduled = scheduler.schedule()
            self._under_way.append((scheduled, self._adapter.begin(scheduled)))
            if scheduled.total_num_scheduled_tokens and len(self._under_way) < DEPTH:
                return 0
        if not self._under_way:
            return 0
        scheduled, output = self._under_way.popleft()
        scheduler.update_from_output(scheduled, output())
        self._hear()
        return int(scheduled.total_num_scheduled_tokens)

    def follow(self, hear: Callable[[], None]) -> None:
        """Have ``hear`` called, which waits for the reply to a call that was made just now, the only one.

        That is at once if no batch is under way. Else it is in the step that accounts for the last one that was begun
        before: the reply comes right behind its output.
        """
        self._under_way.append((None, hear))
        self._hear()

    @property
    def calling(self) -> bool:
        """Whether a call is still to be heard."""
        return any(scheduled is None for scheduled, _wait in self._under_way)

    def _hear(self) -> None:
        """Of all calls that no batch is before."""
        while self._under_way and self._under_way[0][0] is None:
            self._under_way.popleft()[1]()
