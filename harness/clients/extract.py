"""The client behind ``harness extract``: the executor's, whose workers write samples into files themselves.

Its `capture` goes the same way, through a temporary folder, so the suite holds to its promises what extracts.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from array import array
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import processes
from harness.adapters.ahead import Ahead
from harness.engine_arguments import set_variables
from harness.errors import CaptureError, DeliveryError, InvalidPromptError, ReplyTimeoutError
from harness.extraction.feed import Feed, announced
from harness.extraction.jobs import Job, Progress, Tuning

from .contract import EngineSpec, Sample, check_prompts, check_spec
from .executor import ExecutorClient, ExecutorEngine
from .failures import bounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.adapters.base import Adapter

    from .contract import ExecutorBackend

# How often the workers are asked what they have delivered: each time costs the forward a call.
POLL_SECONDS = 1.0
# What the workers are told of at once, in forwards: a few seconds of work, and some MB of token ids.
AHEAD = 64
# Closing must not wait long for a worker that does not answer.
CLOSE_SECONDS = 5.0


class ExtractEngine(ExecutorEngine):
    """An executor's engine that delivers into a folder.

    `start` a run, `add` jobs, `advance` until none waits, `finish`. After an error of `advance` or `finish`, `start`
    the next run.
    """

    def __init__(self, spec: EngineSpec, adapter: Adapter, tuning: Tuning) -> None:
        super().__init__(spec, adapter)
        self._tuning = tuning
        self._ahead = Ahead(adapter)
        self._run = 0
        self._feed = Feed()
        self._asked = 0.0
        self._moved = 0.0
        self._left = 0.0

    def start(self, folder: str, layout: str = "connector") -> None:
        """Open a run: the workers open the folder, and allocate what they copy into.

        Raises:
            DeliveryError: the folder cannot be written.
        """
        self._abandon()
        self._run += 1
        self._feed = Feed()
        refused = self.ask("harness_extract_start", self._run, str(Path(folder).absolute()), layout, self._tuning)
        for reason in filter(None, refused):
            raise DeliveryError(reason)
        self._moved = self._asked = self._left = time.monotonic()

    def add(self, jobs: Sequence[Job]) -> None:
        """Queue jobs.

        Raises:
            InvalidPromptError: one of them cannot be run; none is queued then.
        """
        check_prompts(self.spec, [job.token_ids for job in jobs])
        for job in jobs:
            if job.loss_mask is not None and len(job.loss_mask) != len(job.token_ids):
                raise InvalidPromptError(
                    f"job {job.index} has {len(job.token_ids)} tokens and a loss mask of {len(job.loss_mask)}: give "
                    f"one value a token, or no mask."
                )
        self._feed.add(jobs)

    def advance(self, seconds: float) -> Progress:
        """Run for about so long, or until every job is delivered.

        Raises:
            DeliveryError: files cannot be written.
            DamagedStatesError: a row is not finite, or empty.
            IncompleteSampleError: a sample lacks rows, or was computed of other ids.
            ReplyTimeoutError: nothing has moved for the spec's timeout, all calls together.
        """
        now = time.monotonic()
        self._moved += now - self._left  # Between two calls nothing can move.
        deadline = now + seconds
        with self._calls.watched(fatal=(CaptureError,)):
            while self._feed.waiting and not self._feed.failed and (left := deadline - time.monotonic()) > 0:
                if self._has_to_ask():
                    self._exchange(0.0)
                elif self._ahead.busy():
                    if self._ahead.step():
                        self._moved = time.monotonic()
                else:
                    self._exchange(min(left, POLL_SECONDS))
                self._require_movement()
        self._left = time.monotonic()
        return self._feed.progress()

    def finish(self) -> Progress:
        """Run until every job is delivered. Raises as `advance`."""
        parts = []
        while self._feed.waiting:
            parts.append(self.advance(POLL_SECONDS))
        parts.append(self._feed.progress())
        self._settle()
        return Progress(
            delivered=tuple(one for part in parts for one in part.delivered),
            waiting=0,
            tokens=sum(part.tokens for part in parts),
            bytes=sum(part.bytes for part in parts),
            stalled=sum(part.stalled for part in parts),
        )

    def _has_to_ask(self) -> bool:
        """One call at a time: workers that nobody hears stop when their queue is full, and so does who calls them."""
        return not self._ahead.calling and (self._starves() or time.monotonic() - self._asked > POLL_SECONDS)

    def _starves(self) -> bool:
        """Whether the scheduler could soon have less than it can run at once."""
        return self._feed.queued and self._adapter.scheduler.get_num_unfinished_requests() < self.spec.max_num_seqs

    def _exchange(self, seconds: float) -> None:
        """Tell the workers of the next jobs, queue them, and hear of earlier ones once the workers come to it.

        Args:
            seconds: how long the workers wait for what is on its way into files, at most.
        """
        jobs = self._feed.take(AHEAD * self.spec.max_num_batched_tokens) if self._starves() else []
        replies = self._calls.begin(
            self._adapter.begin_rpc, "harness_extract_exchange", [announced(job) for job in jobs], seconds
        )
        self._asked = time.monotonic()
        self._ahead.follow(lambda: self._hear(replies()))
        for job in jobs:
            self._adapter.add(self._name(job.index), job.token_ids)
        if jobs:
            self._moved = time.monotonic()

    def _hear(self, replies: list[Any]) -> None:
        if self._feed.hear(replies):
            self._moved = time.monotonic()

    def _require_movement(self) -> None:
        if time.monotonic() - self._moved > self.spec.timeout:
            raise ReplyTimeoutError(
                f"no token was computed and no sample delivered for {self.spec.timeout:g} s, and "
                f"{len(self._feed.waiting)} samples wait: a prompt does not fit the KV cache or the token budget, or "
                f"the folder takes nothing. See the log, and give the engine a longer timeout if its disk is so slow."
            )

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        check_prompts(self.spec, prompts)
        with tempfile.TemporaryDirectory(prefix="hidden-states-") as folder:
            self.start(folder)
            self.add([Job(index=index, token_ids=array("q", prompt)) for index, prompt in enumerate(prompts)])
            files = {one.index: one.file for one in self.finish().delivered}
            return [self._read(Path(folder) / files[index]) for index in range(len(prompts))]

    def _abandon(self) -> None:
        """Take what a run that failed has left out of the scheduler: nobody waits for it any more."""
        self._adapter.abort([self._name(index) for index in self._feed.waiting])
        self._settle()

    def _settle(self) -> None:
        """Account for what is under way, and tell the workers of the requests that are done."""
        with self._calls.watched(fatal=(CaptureError,)):
            while self._ahead.busy():
                self._ahead.step()

    def _name(self, index: int) -> str:
        """A request's: runs are numbered, so that none is taken for one of an earlier run."""
        return f"extract-{self._run}-{index}"

    def _read(self, path: Path) -> Sample:
        from safetensors.torch import load_file

        tensors = load_file(str(path))
        states = tensors["hidden_states"]
        return Sample(
            token_ids=tensors["token_ids"].tolist(),
            states={layer: states[:, place].contiguous() for place, layer in enumerate(self.spec.layers)},
        )

    def close(self) -> None:
        # A worker that is gone takes its threads and its memory with it; one that is the caller does not.
        if self._run and self._calls.workers and not processes.ended(self._calls.workers):
            with contextlib.suppress(CaptureError, TimeoutError, ConnectionError):
                # Bounded, as a call waits for the batches that are under way first.
                bounded(
                    lambda: self.rpc("harness_extract_close", limit=CLOSE_SECONDS), CLOSE_SECONDS, self._calls.workers
                )
        super().close()


def extension(capture: str) -> str:
    """The extension that extracts where this one would capture: a build's repair has one of each (`repairs`)."""
    if capture == EngineSpec.extension:
        return "harness.extraction.extension.ExtractExtension"
    return f"{capture.removesuffix('Extension')}ExtractExtension"


def asynchronous(executor_backend: ExecutorBackend) -> bool | None:
    """The ``async_scheduling`` of an extraction's engine.

    Worker processes that vLLM lets schedule asynchronously begin the next batch before the device is done with the
    last one. Of the others none has a next one (`TwoPhase.begin`).
    """
    return None if executor_backend == "mp" else False


class ExtractClient:
    """Ours, for extraction; ``tuning`` is how its workers deliver."""

    name = "extract"

    def __init__(self, tuning: Tuning | None = None) -> None:
        self._tuning = tuning or Tuning()

    def refuses(self, spec: EngineSpec) -> str | None:
        if spec.pipeline_parallel_size > 1:
            return "needs all layers in one worker: with pipeline stages, none has a whole sample"
        return ExecutorClient().refuses(spec)

    def open(self, spec: EngineSpec) -> ExtractEngine:
        from harness import adapters

        check_spec(spec)
        spec = replace(
            spec, extension=extension(spec.extension), async_scheduling=asynchronous(spec.executor_backend)
        )
        set_variables(spec)
        adapter = adapters.select()(spec)
        adapter.boot()
        return ExtractEngine(spec, adapter, self._tuning)


CLIENT = ExtractClient()
