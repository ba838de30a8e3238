"""The driver's half: which jobs go to the workers when, and what came of them. Knows neither vLLM nor torch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.errors import CAPTURE_ERRORS, CaptureError

from .jobs import Delivered, Job, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Announced: TypeAlias = tuple[int, bytes, bytes | None]


class Feed:
    """The jobs of one run.

    ``delivered`` and the figures are kept until `progress` hands them over.
    """

    def __init__(self) -> None:
        self._queue: deque[Job] = deque()
        self._waiting: set[int] = set()
        self._delivered: list[Delivered] = []
        self._failures: list[Mapping[str, Any]] = []
        self._stalled = 0.0

    def add(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.index in self._waiting:
                raise ValueError(f"job {job.index} is waiting already")
            self._queue.append(job)
            self._waiting.add(job.index)

    @property
    def queued(self) -> bool:
        """Whether jobs have not been handed out yet."""
        return bool(self._queue)

    @property
    def waiting(self) -> set[int]:
        """The indices of the jobs that have not been delivered."""
        return self._waiting

    @property
    def failed(self) -> bool:
        return bool(self._failures)

    def take(self, tokens: int) -> list[Job]:
        """The next jobs, of so many tokens together, and one at the least, if there is one."""
        taken: list[Job] = []
        while self._queue and tokens > 0:
            taken.append(self._queue.popleft())
            tokens -= len(taken[-1].token_ids)
        return taken

    def hear(self, replies: Sequence[Mapping[str, Any]]) -> int:
        """Take in what the ranks replied to ``harness_extract_exchange``; how many samples were delivered."""
        heard = 0
        for rank, reply in enumerate(replies):
            for row in reply["delivered"]:
                self._delivered.append(Delivered(rank=rank, **row))
                self._waiting.discard(row["index"])
                heard += 1
            self._failures += reply["failed"]
        self._stalled += max(reply["stalled"] for reply in replies)
        return heard

    def progress(self) -> Progress:
        """What was delivered since the last call.

        Raises:
            CaptureError: of the class that a worker named. Not before what was delivered by then has been handed
                over.
        """
        if self._failures and not self._delivered:
            raise failure(self._failures)
        delivered, self._delivered = tuple(self._delivered), []
        stalled, self._stalled = self._stalled, 0.0
        return Progress(
            delivered=delivered,
            waiting=len(self._waiting),
            tokens=sum(one.tokens for one in delivered),
            bytes=sum(one.bytes for one in delivered),
            stalled=stalled,
        )


def failure(failures: Sequence[Mapping[str, Any]]) -> CaptureError:
    """The first of several failures, which says how many there are."""
    first = failures[0]
    more = f" ({len(failures) - 1} more samples failed)" if len(failures) > 1 else ""
    return CAPTURE_ERRORS[first["kind"]](f"{first['text']}{more}")


def announced(job: Job) -> Announced:
    """A job as the workers get it: the ids and the mask as the bytes of int64, as they go into the file."""
    return job.index, job.token_ids.tobytes(), None if job.loss_mask is None else job.loss_mask.tobytes()
