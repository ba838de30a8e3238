"""The extension that vLLM mixes into its workers for an extraction: each rank writes its share of the samples itself.

This module is imported by worker processes: the standard library and torch only. Its public names start with
``harness_``, as `harness.worker` says. Under tensor parallelism every rank has the whole residual stream, so the
ranks share the samples: rank ``index % tensor_parallel_size`` writes that of an index.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness import worker_log
from harness.decoder import loaded_model
from harness.worker import CaptureExtension

from . import room
from .jobs import MIB, Tuning
from .layouts import LAYOUTS, Form, Text
from .run import Run, why_not_written
from .staging import Memory, Staging, form_of
from .taps import Taps

if TYPE_CHECKING:
    from collections.abc import Sequence

# Some five forwards of 8192 tokens, 4 layers and width 7168, in bfloat16. On a CPU nothing waits for a copy.
RING_BYTES = {True: 2048 * MIB, False: 64 * MIB}
# One thread makes about 3 GB/s of new files on tmpfs, where pages are allocated while they are written, and a forward
# brings 9; beyond sixteen they wait for each other.
MOST_WRITERS = 16


def writers_for(cores: int, ranks: int) -> int:
    """Threads a rank: the machine's cores are shared by its ranks, and two hide what one waits for."""
    return max(2, min(MOST_WRITERS, cores // ranks))


class ExtractExtension(CaptureExtension):
    """Mixed into vLLM's worker class by ``worker_extension_cls``, in place of `CaptureExtension`."""

    def harness_start(self, layers: Sequence[int]) -> str | None:
        """Put hooks on these decoder layers; states go nowhere until `harness_extract_start`.

        Returns:
            Why the device has no room for states, if it has none.
        """
        worker: Any = self
        config = worker.vllm_config
        tokens = config.scheduler_config.max_num_batched_tokens
        device = next(loaded_model(worker.model_runner).parameters()).device
        self.harness_layers = tuple(layers)
        self.harness_form = Form(**form_of(config, len(layers)))
        try:
            self.harness_staging = Staging(tokens=tokens, form=self.harness_form, device=device)
        except torch.OutOfMemoryError:
            free, total = torch.cuda.mem_get_info(device)
            share = config.cache_config.gpu_memory_utilization
            return room.refusal(self.harness_form, tokens, free=free, total=total, utilization=share)
        self.harness_recorder: Any = Taps(worker.model_runner, layers, self.harness_staging)
        self.harness_run: Run | None = None
        self.harness_memory: Memory | None = None
        model = type(loaded_model(worker.model_runner)).__name__
        worker_log.logger(worker.rank).info("hooks on layers %s of %s", list(layers), model)
        return None

    def harness_extract_start(self, number: int, folder: str, layout: str, tuning: Tuning) -> str:
        """Open a run; the one before is closed.

        Returns:
            Why the folder cannot be written, or nothing.
        """
        worker: Any = self
        self._harness_end_run()
        try:
            _try_folder(Path(folder), worker.rank)
        except OSError as error:
            return why_not_written(error, Path(folder), 1)
        ranks = worker.vllm_config.parallel_config.tensor_parallel_size
        cuda = self.harness_staging.cuda
        memory = self._harness_room(tuning.ring_bytes or RING_BYTES[cuda])
        run = Run(
            folder=Path(folder),
            layout=LAYOUTS[layout],
            form=self.harness_form,
            layers=self.harness_layers,
            memory=memory.view,
            piece_bytes=tuning.piece_bytes,
            threads=tuning.writers or writers_for(len(os.sched_getaffinity(0)), ranks),
        )
        self.harness_run = run
        self.harness_recorder.attach(number, run, memory, (worker.rank % ranks, ranks))
        return ""

    def harness_extract_exchange(
        self, announced: Sequence[tuple[int, bytes, bytes | None]], seconds: float
    ) -> dict[str, Any]:
        """Take the next samples, as index, token ids and loss mask in bytes of int64; tell what came of earlier ones.

        Returns:
            What `Run.collect` does, after waiting for so long at most until nothing is on its way.
        """
        worker: Any = self
        run = self.harness_run
        if run is None:
            raise RuntimeError("no run is open: call harness_extract_start first")
        ranks = worker.vllm_config.parallel_config.tensor_parallel_size
        for index, token_ids, loss_mask in announced:
            if index % ranks == worker.rank % ranks:
                run.announce(index, Text(token_ids=token_ids, loss_mask=loss_mask))
        self.harness_recorder.flush()
        return run.collect(seconds)

    def harness_extract_close(self) -> None:
        """End the run's threads and give its memory back; samples that are not whole leave nothing behind."""
        self._harness_end_run()
        memory, self.harness_memory = self.harness_memory, None
        if memory is not None:
            memory.close()

    def _harness_end_run(self) -> None:
        self.harness_recorder.detach()
        run, self.harness_run = self.harness_run, None
        if run is not None:
            run.close()
            self.harness_staging.settle()  # What is still being copied must not land in the next run's memory.

    def _harness_room(self, size: int) -> Memory:
        """Memory for a run: that of the last one, if it is as large, since locking it takes a while."""
        kept = self.harness_memory
        if kept is not None and len(kept.view) != size:
            kept.close()
            kept = None
        self.harness_memory = kept or Memory(size, cuda=self.harness_staging.cuda)
        return self.harness_memory

    def harness_take(self) -> None:
        """Nothing is kept here: samples are in files."""

    def harness_clear(self) -> None:
        """As `harness_take`."""


def _try_folder(folder: Path, rank: int) -> None:
    """Write a byte where samples will be written.

    Raises:
        OSError: it cannot be.
    """
    trial = folder / f".harness-{rank}-{os.getpid()}"
    try:
        trial.write_bytes(b"\0")
    finally:
        with contextlib.suppress(OSError):
            trial.unlink()
