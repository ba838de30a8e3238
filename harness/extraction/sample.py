"""One sample on its way into its file: which rows are there, who still works on it, and when it is over."""

from __future__ import annotations

import contextlib
import os
import threading
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .layouts import Form, Layout, Text


class Sample:
    """The file of one sample, filled by several threads.

    Rows may come in any order, and again: a preempted request is computed anew. So rows are counted, not bytes.
    What takes time is made by whoever writes first, as the forward waits for whoever announces.
    """

    def __init__(self, index: int, text: Text, folder: Path, layout: Layout, form: Form) -> None:
        self.index = index
        self.text = text
        self._folder = folder
        self._layout = layout
        self._form = form
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._seen = bytearray(text.rows)
        self._pending = 0
        self._ended = False
        self._failed = False
        self._over = False

    @cached_property
    def head(self) -> bytes:
        return self._layout.head(self._form, self.text)

    @cached_property
    def final(self) -> Path:
        return self._folder / self._layout.file(self.index)

    @cached_property
    def partial(self) -> Path:
        return self.final.with_name(f"{self.final.name}.partial")

    @property
    def size(self) -> int:
        """Bytes of the partial file with all its rows."""
        return len(self.head) + self.text.rows * self._form.row_bytes

    def expect(self) -> bool:
        """One more piece will be settled; False if the sample wants none."""
        with self._lock:
            if self._over or self._failed:
                return False
            self._pending += 1
            return True

    @property
    def wanted(self) -> bool:
        return not self._failed

    def write(self, start: int, rows: memoryview) -> None:
        """Write rows where they belong.

        Raises:
            OSError: the file system does not take them.
        """
        with self._lock:
            if self._descriptor is None:
                self._descriptor = os.open(self.partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
                _write(self._descriptor, memoryview(self.head), 0)
            descriptor = self._descriptor
        _write(descriptor, rows, len(self.head) + start * self._form.row_bytes)

    def settle(self, start: int, stop: int) -> bool:
        """A piece has been dealt with, and these rows are written.

        Returns:
            Whether the sample is over; so it is told to one caller only, which closes it.
        """
        with self._lock:
            self._seen[start:stop] = b"\1" * (stop - start)
            self._pending -= 1
            return self._ends()

    def drop(self) -> bool:
        """A piece has been dealt with, and nothing more is wanted of this sample. Returns as `settle` does."""
        with self._lock:
            self._failed = True
            self._pending -= 1
            return self._ends()

    def refuse(self) -> bool:
        """Nothing more is wanted of this sample. Returns as `settle` does."""
        with self._lock:
            self._failed = True
            return self._ends()

    def end(self) -> bool:
        """No further piece will come: its request is done. Returns as `settle` does."""
        with self._lock:
            self._ended = True
            return self._ends()

    def _ends(self) -> bool:
        if self._over or self._pending:
            return False
        self._over = self._failed or self._ended or 0 not in self._seen
        return self._over

    def missing(self) -> list[int]:
        """The rows that were not written."""
        return [row for row, seen in enumerate(self._seen) if not seen]

    def close(self) -> None:
        with self._lock:
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)

    def discard(self) -> None:
        """Leave nothing of it behind, as far as the file system lets us."""
        with contextlib.suppress(OSError):
            self.close()
        with contextlib.suppress(OSError):
            self.partial.unlink()


def _write(descriptor: int, data: memoryview, place: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, place)
        data, place = data[count:], place + count
