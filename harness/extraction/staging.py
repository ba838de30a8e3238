"""Where forwards leave states on the device, and how they get from there into the ring's memory.

This module is imported by worker processes: the standard library and torch only.

With CUDA, all waits but the last are the device's own: the copies wait for the forward that filled a tensor, and the
forward that is about to fill it again waits for the copies. Only writers wait, each for its own piece. On a CPU the
same calls do their work at once.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


class Staged:
    """One tensor ``[tokens, layers, hidden_size]``, its flags ``[tokens, layers]``, and who is done with it."""

    def __init__(self, tokens: int, form: Form, device: torch.device) -> None:
        shape = (tokens, form.layers, form.hidden_size)
        self.states = torch.empty(shape, dtype=getattr(torch, form.dtype), device=device)
        self.flags = torch.empty(shape[:2], dtype=torch.uint8, device=device)
        self.computed = torch.cuda.Event() if device.type == "cuda" else None
        self.copied = torch.cuda.Event() if device.type == "cuda" else None


class Staging:
    """Tensors that forwards fill in turn."""

    def __init__(self, *, tokens: int, form: Form, device: torch.device, count: int) -> None:
        self.form = form
        self._device = device
        self._tensors = itertools.cycle([Staged(tokens, form, device) for _number in range(count)])
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def cuda(self) -> bool:
        return self._stream is not None

    def next(self) -> Staged:
        """The tensor that the coming forward fills; on the device, what it does waits until the copies of it are."""
        staged = next(self._tensors)
        if staged.copied is not None:
            staged.copied.wait()  # Of the current stream. An event that was never recorded is no wait.
        return staged

    def filled(self, staged: Staged, rows: int) -> None:
        """A forward is on its way: have its rows checked."""
        states, flags = staged.states[:rows], staged.flags[:rows]
        # The largest value of each row and layer: NaN and infinity come through, and 0 is an empty row.
        largest = torch.linalg.vector_norm(states, ord=float("inf"), dim=-1)
        flags.copy_(torch.isfinite(largest).logical_not_())
        flags.add_(largest == 0, alpha=2)
        if staged.computed is not None:
            staged.computed.record()

    @contextlib.contextmanager
    def copying(self, staged: Staged) -> Iterator[None]:
        """While copies of a tensor are asked for: they come after its forward, and before it is filled again."""
        if self._stream is None or staged.computed is None or staged.copied is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            staged.computed.wait()
            yield
            staged.copied.record()

    def copy(self, staged: Staged, memory: Memory, row: int, count: int, place: int) -> Callable[[], None]:
        """Have rows and their flags copied, one after the other, to a place in memory; within `copying`.

        Returns:
            What waits until they are there.
        """
        size = count * self.form.row_bytes
        rows = memory.bytes[place : place + size].view(staged.states.dtype).view(count, *staged.states.shape[1:])
        flags = memory.bytes[place + size : place + size + count * self.form.layers].view(count, self.form.layers)
        rows.copy_(staged.states[row : row + count], non_blocking=True)
        flags.copy_(staged.flags[row : row + count], non_blocking=True)
        if self._stream is None:
            return _at_once
        # Blocking: a thread that waits sleeps, and leaves the core to those that write.
        event = torch.cuda.Event(blocking=True)
        event.record()

        def wait() -> None:
            torch.cuda.set_device(self._device)  # A thread begins on the first device, whichever its process uses.
            event.synchronize()

        return wait

    def settle(self) -> None:
        """Wait for all copies."""
        if self._stream is not None:
            self._stream.synchronize()


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
