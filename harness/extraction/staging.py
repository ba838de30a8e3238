"""Where forwards leave states on the device, and how they get from there into the ring's memory.

This module is imported by worker processes: the standard library and torch only.

With CUDA, all waits but the last are the device's own: taking waits for the forward, the next forward's hooks wait
until that is done, and copies and the next taking follow in turn. One thread alone waits for the device, for one copy
after the other (`writers`). On a CPU the same calls do their work at once.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .layouts import Form


class Memory:
    """The ring's bytes, exactly as many, page-locked where there is a GPU: torch's own pinned memory is rounded up to
    a power of two, and kept by its allocator.
    """

    def __init__(self, size: int, *, cuda: bool) -> None:
        """Allocate.

        Raises:
            RuntimeError: the driver does not lock so much.
        """
        area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # Where the kernel has no huge pages, small ones do.
            area.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(area)
        self.bytes = torch.frombuffer(area, dtype=torch.uint8)
        self._locked = False
        if cuda:
            code = int(torch.cuda.cudart().cudaHostRegister(self.bytes.data_ptr(), size, 0))
            if code:
                raise RuntimeError(f"cudaHostRegister of {size} bytes failed ({code}): set a smaller ring_bytes")
            self._locked = True

    def close(self) -> None:
        """Give the memory back, once nobody holds a view of it."""
        if self._locked:
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaHostUnregister(self.bytes.data_ptr())
            self._locked = False
        self.bytes = torch.empty(0, dtype=torch.uint8)
        self.view = memoryview(b"")


class Staging:
    """Two tensors on the device: what a forward's hooks fill, and the same rows as they go into files.

    The first is ``[layers, tokens, hidden_size]``, so that a hook adds into one block of memory; that is all that a
    forward has to do for a capture. The rest is done beside the next one, on a stream of its own: `take` puts the
    rows into the second, ``[tokens, layers, hidden_size]``, and looks at them, and `copy` brings them to the ring.
    """

    def __init__(self, *, tokens: int, form: Form, device: torch.device) -> None:
        dtype = getattr(torch, form.dtype)
        self.form = form
        self._states = torch.empty((form.layers, tokens, form.hidden_size), dtype=dtype, device=device)
        self._rows = torch.empty((tokens, form.layers, form.hidden_size), dtype=dtype, device=device)
        self._flags = torch.empty((tokens, form.layers), dtype=torch.uint8, device=device)
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._taken = torch.cuda.Event() if device.type == "cuda" else None

    @property
    def cuda(self) -> bool:
        return self._stream is not None

    def layer(self, place: int, rows: int) -> torch.Tensor:
        """Where a hook leaves the states of a layer, ``[rows, hidden_size]``: good until the next forward's.

        What the device does from here on waits until the last forward's have been taken.
        """
        if self._taken is not None:
            self._taken.wait()  # Of the current stream. An event that was never recorded is no wait.
        return self._states[place, :rows]

    def take(self, rows: int) -> None:
        """Have the rows of the forward that was just begun put side by side, and checked.

        They replace the last forward's, of which all copies must have been asked for.
        """
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with self._beside():
            taken, flags = self._rows[:rows], self._flags[:rows]
            _wide(taken).copy_(_wide(self._states[:, :rows]).transpose(0, 1))
            if self._taken is not None:
                self._taken.record()
            # The largest value of each row and layer: NaN and infinity come through, and 0 is an empty row.
            largest = torch.linalg.vector_norm(taken, ord=float("inf"), dim=-1)
            flags.copy_(torch.isfinite(largest).logical_not_())
            flags.add_(largest == 0, alpha=2)

    def copy(self, memory: Memory, row: int, count: int, place: int) -> Callable[[], None]:
        """Have rows that were taken copied, and their flags behind them, to a place in memory.

        Returns:
            What waits until they are there.
        """
        size = count * self.form.row_bytes
        rows = memory.bytes[place : place + size].view(self._rows.dtype).view(count, *self._rows.shape[1:])
        flags = memory.bytes[place + size : place + size + count * self.form.layers].view(count, self.form.layers)
        with self._beside():
            rows.copy_(self._rows[row : row + count], non_blocking=True)
            flags.copy_(self._flags[row : row + count], non_blocking=True)
            if self._stream is None:
                return _at_once
            # Blocking: a thread that waits sleeps, and leaves the core to those that write.
            event = torch.cuda.Event(blocking=True)
            event.record()

        def wait() -> None:
            torch.cuda.set_device(self._device)  # A thread begins on the first device, whichever its process uses.
            event.synchronize()

        return wait

    def _beside(self) -> contextlib.AbstractContextManager[object]:
        """On the stream that works beside the forwards, if there is one; in turn with all that was asked before."""
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def settle(self) -> None:
        """Wait for all copies."""
        if self._stream is not None:
            self._stream.synchronize()


def _wide(states: torch.Tensor) -> torch.Tensor:
    """The same memory in elements of eight bytes, if they divide a row: a copy that rearranges moves single ones."""
    whole = states.shape[-1] * states.element_size() % torch.int64.itemsize == 0
    return states.view(torch.int64) if whole else states


def _at_once() -> None:
    """Nothing to wait for."""


def form_of(vllm_config: Any, layers: int) -> dict[str, Any]:
    """The fields of `layouts.Form`, of what a worker runs."""
    model = vllm_config.model_config
    return {
        "layers": layers,
        "hidden_size": model.get_hidden_size(),
        "dtype": str(model.dtype).removeprefix("torch."),
    }
