"""Room in one buffer, given out in turn: what bounds the memory between the forward and the files."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

# Rows then start on a page, which the kernel copies fastest, and at a multiple of any element's size.
ALIGNMENT = 4096


@dataclass(eq=False, slots=True)
class Span:
    """Bytes ``start`` to ``stop`` of the buffer."""

    start: int
    stop: int
    free: bool = False


class Ring:
    """Spans come from the head of a ring and may be given back in any order; room is found behind the oldest one.

    So a span is always in one piece, and memory is never in more pieces than two. ``stalled`` is how long `reserve`
    has waited, in seconds.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.stalled = 0.0
        self._taken: deque[Span] = deque()  # Oldest first.
        self._closed = False
        self._changed = threading.Condition()

    def reserve(self, size: int) -> Span | None:
        """Wait for room; None if the ring is closed, before or while waiting.

        Raises:
            ValueError: it is more than the ring ever has.
        """
        size = -(-size // ALIGNMENT) * ALIGNMENT
        if size > self.capacity:
            raise ValueError(f"{size} bytes do not fit a ring of {self.capacity}")
        with self._changed:
            if not self._closed and self._room(size) is None:
                since = time.monotonic()
                self._changed.wait_for(lambda: self._closed or self._room(size) is not None)
                self.stalled += time.monotonic() - since
            start = self._room(size)
            if self._closed or start is None:
                return None
            span = Span(start, start + size)
            self._taken.append(span)
            return span

    def _room(self, size: int) -> int | None:
        if not self._taken:
            return 0
        tail, head = self._taken[0].start, self._taken[-1].stop
        if head > tail:  # Used in between: free are the end, and then the beginning.
            if self.capacity - head >= size:
                return head
            return 0 if tail >= size else None
        return head if tail - head >= size else None

    def release(self, span: Span) -> None:
        with self._changed:
            span.free = True
            while self._taken and self._taken[0].free:
                self._taken.popleft()
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits from here on, and nothing is given out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
