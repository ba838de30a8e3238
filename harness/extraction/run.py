"""One run of a worker: a folder, the samples that this rank writes into it, and what came of them."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from .ring import ALIGNMENT, Ring
from .sample import Sample
from .writers import Piece, Writers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .layouts import Form, Layout, Text

    # Puts rows ``first`` to ``first + count`` of what is submitted, and their flags behind them, at a place in the
    # buffer; gives what waits until they are there.
    Copy: TypeAlias = Callable[[int, int, int], Callable[[], None]]

# Pieces in the ring at any time, at the least: one is written while the next ones are copied.
PIECES = 4
NOT_FINITE, EMPTY = 1, 2
_WRONG = {NOT_FINITE: "is not finite", EMPTY: "is empty (all zeros)"}


class Run:
    """Samples by index, filled from the forward's thread, written by `Writers`, and told of in `collect`.

    A failure is a mapping of ``kind``, a class of ``harness.errors``, ``index`` and ``text``. One of the file system
    stops the run: what comes later is dropped, so that the forward never waits for a disk that takes nothing.
    """

    def __init__(
        self,
        *,
        folder: Path,
        layout: Layout,
        form: Form,
        layers: Sequence[int],
        memory: memoryview,
        piece_bytes: int,
        threads: int,
    ) -> None:
        self.form = form
        self._folder = folder
        self._layout = layout
        self._layers = tuple(layers)
        self._memory = memory
        self._ring = Ring(len(memory))
        unit = form.row_bytes + form.layers
        room = min(piece_bytes, len(memory) // PIECES) // ALIGNMENT * ALIGNMENT
        if room < unit:
            raise ValueError(f"a row of {unit} bytes does not fit a piece of {room}: give the ring more memory")
        self._piece_rows = room // unit
        self.stopped = False
        self._announced: dict[int, Text] = {}  # Of the forward's thread alone.
        self._samples: dict[int, Sample] = {}
        self._lock = threading.Lock()
        self._delivered: list[dict[str, Any]] = []
        self._failures: list[dict[str, Any]] = []
        self._told_stalls = 0.0
        # Sixteen writers with 32k tokens of 4 layers of width 7168 each would hold 30 GB of copies.
        self._finishing = threading.Lock() if layout.copies else contextlib.nullcontext()
        self._writers = Writers(threads, self._ring, self)

    # From the forward's thread.

    def announce(self, index: int, text: Text) -> None:
        """This sample will come, with these ids."""
        self._announced[index] = text

    def _find(self, index: int) -> Sample | None:
        """A sample that was announced and is not over. Made when it begins: its forward is on the device by then."""
        text = self._announced.pop(index, None)
        if text is None:
            return self._samples.get(index)
        sample = Sample(index, text, self._folder, self._layout, self.form)
        with self._lock:
            self._samples[index] = sample
        return sample

    def begins(self, index: int, token_ids: bytes) -> None:
        """A request of this sample has begun, and the model sees these ids."""
        sample = self._find(index)
        if sample is not None and sample.text.token_ids != token_ids:
            self._fail(
                sample,
                "IncompleteSampleError",
                f"the model was given {len(token_ids) // 8} other token ids than the {sample.text.rows} of the job",
            )

    def submit(self, index: int, start: int, count: int, copy: Copy) -> None:
        """Rows ``start`` to ``start + count`` of a sample are there to be copied; waits for room to copy them to."""
        sample = self._find(index)
        done = 0
        while sample is not None and done < count:
            rows = min(count - done, self._piece_rows)
            size = rows * self.form.row_bytes
            flags = rows * self.form.layers
            span = self._ring.reserve(size + flags)
            if span is None or not sample.expect():
                if span is not None:
                    self._ring.release(span)
                return
            ready = copy(done, rows, span.start)
            self._writers.put(
                Piece(
                    sample=sample,
                    start=start + done,
                    stop=start + done + rows,
                    rows=self._memory[span.start : span.start + size],
                    flags=self._memory[span.start + size : span.start + size + flags],
                    span=span,
                    ready=ready,
                )
            )
            done += rows

    def refuse(self, index: int, kind: str, text: str) -> None:
        """A sample is wrong before anything of it was copied."""
        sample = self._find(index)
        if sample is not None:
            self._fail(sample, kind, text)

    def ends(self, index: int) -> None:
        """A sample's request is done: what has not come will not."""
        sample = self._find(index)
        if sample is not None and sample.end():
            self.over(sample)

    def collect(self, seconds: float) -> dict[str, Any]:
        """What came of samples since the last call; waits until nothing is on its way, for so long at most.

        Returns:
            ``delivered`` and ``failed``, and ``stalled`` seconds since the last call.
        """
        if seconds:
            self._writers.wait_idle(seconds)
        stalled = self._ring.stalled
        with self._lock:
            delivered, self._delivered = self._delivered, []
            failed, self._failures = self._failures, []
        told, self._told_stalls = self._told_stalls, stalled
        return {"delivered": delivered, "failed": failed, "stalled": stalled - told}

    def close(self) -> None:
        """End the threads; samples that are not whole by now leave nothing behind."""
        self.stopped = True
        self._ring.close()
        self._writers.close()
        for sample in list(self._samples.values()):
            sample.discard()
        self._samples.clear()

    # From the writers' threads.

    def over(self, sample: Sample) -> None:
        """Close a sample: a finished file, or a failure and nothing left of it."""
        with self._lock:
            known = self._samples.pop(sample.index, None)
        if known is None:  # It has failed, and that was told.
            sample.discard()
            return
        missing = sample.missing()
        if missing:
            sample.discard()
            if not self.stopped:  # Else they were dropped, and why is told.
                self._note(sample, "IncompleteSampleError", _incomplete(missing, sample.text.rows))
        else:
            try:
                sample.close()
                with self._finishing:
                    self._layout.finish(sample.partial, sample.final, self.form, sample.text)
                size = sample.final.stat().st_size
            except Exception as error:  # noqa: BLE001 - whatever it is, the driver must hear of it.
                sample.discard()
                self._broken(sample, error)
                return
            row = {"index": sample.index, "file": sample.final.name, "tokens": sample.text.rows, "bytes": size}
            with self._lock:
                self._delivered.append(row)

    def flagged(self, piece: Piece, place: int) -> None:
        row, layer = divmod(place, self.form.layers)
        self._fail(
            piece.sample,
            "DamagedStatesError",
            f"row {piece.start + row} of {piece.sample.text.rows} {_WRONG[piece.flags[place]]} after layer "
            f"{self._layers[layer]}: the weights, the kernels or the capture of this layer are wrong. Run "
            f"`harness check` on this model kind and device.",
        )

    def failed(self, piece: Piece, error: Exception) -> None:
        self._broken(piece.sample, error)

    def _broken(self, sample: Sample, error: Exception) -> None:
        """The file system, or something that nobody foresaw: the run stops."""
        first, self.stopped = not self.stopped, True
        self._ring.close()
        with self._lock:
            self._samples.pop(sample.index, None)
        if first:  # What fails after that fails for the same reason.
            self._note(sample, "DeliveryError", why_not_written(error, self._folder, sample.size))

    def _fail(self, sample: Sample, kind: str, text: str) -> None:
        with self._lock:
            known = self._samples.pop(sample.index, None)
        if sample.refuse():
            sample.discard()
        if known is not None:
            self._note(sample, kind, text)

    def _note(self, sample: Sample, kind: str, text: str) -> None:
        with self._lock:
            self._failures.append({"kind": kind, "index": sample.index, "text": f"sample {sample.index}: {text}"})


def _incomplete(missing: list[int], rows: int) -> str:
    return (
        f"rows {missing[0]} to {missing[-1]} of {rows} were never computed ({len(missing)} missing). A prefix-cache "
        f"hit skips them: set enable_prefix_caching=False."
    )


def why_not_written(error: Exception, folder: Path, needed: int) -> str:
    """What kept a file of ``needed`` bytes from being written, and what to do."""
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}. The worker's log has more."
    advice = _ADVICE.get(error.errno or 0, "See to it that the folder can be written, and start again")
    free = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        stat = os.statvfs(folder)
        free = f" This file needs {needed:,} bytes and {stat.f_bavail * stat.f_frsize:,} are free."
    return (
        f"cannot write to {folder}: {error.strerror or error}.{free} {advice}: what is delivered by now is kept, and "
        f"nothing is half written."
    )


_ADVICE: Mapping[int, str] = {
    errno.ENOSPC: "Free space or give another folder, and start again",
    errno.EDQUOT: "Free space, have the quota raised or give another folder, and start again",
    errno.EFBIG: "Raise the limit of a file's size (ulimit -f), or take shorter prompts, and start again",
    errno.EACCES: "Give a folder that may be written, and start again",
    errno.EROFS: "Give a folder that may be written, and start again",
    errno.ENOENT: "Put the folder back or give another one, and start again",
    errno.EIO: "Look after the disk or give another folder, and start again",
}
