"""What the machine itself can do, without vLLM: files in a tmpfs by number of threads, and copies from the device.

``python -m bench.raw FOLDER SAMPLES SAMPLE_BYTES DEVICE`` prints JSON, in bytes a second. It goes first: the memory
of a virtual machine is slow when it is touched for the first time, which ``first_touch`` shows.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = (1, 4, 8, 16)
# The host memory that is written from: as many samples, in turn.
_SOURCES = 16
# Samples a rate is of; all of them are written for the first touch alone.
MOST = 128


class Files:
    """Writes samples below a folder, and takes the time."""

    def __init__(self, folder: Path, samples: int, source: torch.Tensor) -> None:
        self._paths = [folder / str(number) for number in range(samples)]
        self._views = [memoryview(row.numpy()) for row in source]
        self._rows = list(source)

    def rate(self, write: Callable[[int], None], threads: int) -> float:
        """Bytes a second, of all samples written once."""
        start = time.monotonic()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, range(len(self._paths))))
        return len(self._paths) * len(self._views[0]) / (time.monotonic() - start)

    def written(self, number: int) -> None:
        """One ``pwrite`` a file: as fast as the kernel gets and fills pages."""
        file = os.open(self._paths[number], os.O_CREAT | os.O_WRONLY)
        try:
            view, done = self._views[number % len(self._views)], 0
            while done < len(view):
                done += os.pwrite(file, view[done:], done)
        finally:
            os.close(file)

    def mapped(self, number: int) -> None:
        """A file mapped and copied into: a page fault a page, where it is new."""
        row = self._rows[number % len(self._rows)]
        file = os.open(self._paths[number], os.O_CREAT | os.O_RDWR)
        try:
            os.ftruncate(file, len(row))
            with mmap.mmap(file, len(row)) as area:
                torch.frombuffer(area, dtype=torch.uint8).copy_(row)
        finally:
            os.close(file)

    def remove(self) -> None:
        for path in self._paths:
            path.unlink(missing_ok=True)


def _copies(source: torch.Tensor) -> float:
    """Bytes a second from the device into pinned memory, on one stream."""
    there = source.to("cuda")
    best = 0.0
    for _again in range(4):
        torch.cuda.synchronize()
        start = time.monotonic()
        source.copy_(there, non_blocking=True)
        torch.cuda.synchronize()
        best = max(best, source.numel() / (time.monotonic() - start))
    return best


def measure(folder: Path, samples: int, sample_bytes: int, device: str) -> dict[str, Any]:
    """Bytes a second, by what is done and by number of threads."""
    torch.set_num_threads(1)  # The threads are ours.
    source = torch.ones(_SOURCES, sample_bytes, dtype=torch.uint8, pin_memory=device == "cuda")
    everything = Files(folder, samples, source)
    first = everything.rate(everything.written, THREADS[-1])
    everything.remove()
    files = Files(folder, min(samples, MOST), source)
    rates: dict[str, Any] = {"new": {}, "overwritten": {}, "new_mapped": {}}
    for threads in THREADS:
        files.remove()
        rates["new_mapped"][threads] = files.rate(files.mapped, threads)
        files.remove()
        rates["new"][threads] = files.rate(files.written, threads)
        rates["overwritten"][threads] = files.rate(files.written, threads)
    files.remove()
    rounded = {name: {str(threads): round(rate) for threads, rate in by.items()} for name, by in rates.items()}
    copies = {"device_to_pinned": round(_copies(source))} if device == "cuda" else {}
    return {**rounded, "first_touch": {str(THREADS[-1]): round(first)}, **copies}


def main(folder: str, samples: str, sample_bytes: str, device: str) -> None:
    print(json.dumps(measure(Path(folder), int(samples), int(sample_bytes), device)))


if __name__ == "__main__":
    main(*sys.argv[1:])
