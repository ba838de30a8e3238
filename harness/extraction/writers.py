"""The threads that bring pieces of samples into files, several at once."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ring import Ring, Span
    from .sample import Sample

# A write to a disk may hang; a thread that does is left behind, and ends with the process.
JOIN_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Rows of one sample, in memory of the ring, or on their way there until ``ready`` returns.

    ``flags`` has a byte a row and layer: 0 for a good one.
    """

    sample: Sample
    start: int
    stop: int
    rows: memoryview
    flags: memoryview
    span: Span
    ready: Callable[[], None]


class Desk(Protocol):
    """Who the writers report to; called from their threads."""

    stopped: bool
    """From here on nothing is written."""

    def over(self, sample: Sample) -> None:
        """Every piece of a sample has been dealt with, and no other will come."""

    def flagged(self, piece: Piece, place: int) -> None:
        """A piece has a bad row: ``place`` is the first one's in ``flags``."""

    def failed(self, piece: Piece, error: Exception) -> None:
        """A piece did not arrive, or could not be written: ``stopped`` is true from here on."""


class Writers:
    """Bounded threads behind one queue; the queue is bounded by the ring that its pieces lie in.

    One more waits for the pieces, which arrive in turn. Where each of sixteen writers waited for its own, launching
    a forward and its copies took 41 ms, in place of 38 (8 layers of width 7168, 0.20.2, an H200 and 16 cores).
    """

    def __init__(self, threads: int, ring: Ring, desk: Desk) -> None:
        self._ring = ring
        self._desk = desk
        self._coming: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._queue: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._pending = 0
        self._idle = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, name=f"harness-writer-{number}", daemon=True)
            for number in range(threads)
        ]
        self._threads.append(threading.Thread(target=self._receive, name="harness-writer-arrivals", daemon=True))
        for thread in self._threads:
            thread.start()

    def put(self, piece: Piece) -> None:
        with self._idle:
            self._pending += 1
        self._coming.put(piece)

    def wait_idle(self, seconds: float) -> bool:
        """Wait until all pieces have been dealt with; False if it takes longer."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._pending, seconds)

    def _receive(self) -> None:
        while (piece := self._coming.get()) is not None:
            try:
                piece.ready()
            except Exception as error:  # noqa: BLE001 - whatever it is, the driver must hear of it.
                self._desk.failed(piece, error)
            self._queue.put(piece)
            del piece  # Its memory must not be held while there is nothing to do.
        for _writer in self._threads[:-1]:
            self._queue.put(None)

    def _work(self) -> None:
        while (piece := self._queue.get()) is not None:
            try:
                over = self._handle(piece)
            finally:
                self._ring.release(piece.span)
            if over:
                self._desk.over(piece.sample)
            del piece  # As above.
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()

    def _handle(self, piece: Piece) -> bool:
        """Deal with one piece; whether that was the last of its sample."""
        sample = piece.sample
        if self._desk.stopped or not sample.wanted:
            return sample.drop()
        try:
            place = first_bad(piece.flags)
            if place is not None:
                self._desk.flagged(piece, place)
                return sample.drop()
            sample.write(piece.start, piece.rows)
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver must hear of it.
            self._desk.failed(piece, error)
            return sample.drop()
        return sample.settle(piece.start, piece.stop)

    def close(self) -> None:
        """End the threads, in `JOIN_SECONDS` at most.

        What is queued by then is dealt with first, when it has arrived: the desk's ``stopped`` makes that short.
        """
        self._coming.put(None)
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def first_bad(flags: memoryview) -> int | None:
    """Where the first byte that is not 0 stands; None where all are."""
    data = bytes(flags)
    rest = data.lstrip(b"\0")
    return len(data) - len(rest) if rest else None
