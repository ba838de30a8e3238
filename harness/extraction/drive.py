"""The loop of an extraction: keep the engine fed, and note what it delivers, both while it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import IncompleteSampleError

from .layouts import LAYOUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.remote import RemoteEngine

    from .jobs import Delivered, Job, Progress

# How long one call goes on. What is delivered in one is noted in the next, and lost to the journal if this process is
# killed before.
STEP_SECONDS = 1.0
# What the engine holds at most: several of those steps on the fastest machine, some 20 MB here.
QUEUED_TOKENS = 2**21
QUEUED_SAMPLES = 2**14


class Drive:
    """One pass over the samples that are still to come."""

    def __init__(
        self, engine: RemoteEngine, jobs: Iterator[Job], layout: str, note: Callable[[Progress], None]
    ) -> None:
        """Drive an engine that has been started.

        Args:
            engine: it.
            jobs: the samples, in turn.
            layout: that they are written in.
            note: told of every advance, once what it delivered has been found to be what was asked for.
        """
        self._engine = engine
        self._jobs = jobs
        self._file = LAYOUTS[layout].file
        self._note = note
        # Tokens, by sample.
        self._owed: dict[int, int] = {}
        # The answer that is not noted yet.
        self._last: Progress | None = None

    def run(self) -> None:
        """Until every sample is delivered.

        Raises:
            CaptureError: the engine's, or `IncompleteSampleError`: it delivered something else than it was asked for.
        """
        try:
            self._deliver()
        finally:  # Whatever has come in between: files that are not noted are removed.
            self._settle()
        self._take(self._engine.call("finish"))
        if self._owed:
            raise IncompleteSampleError(
                f"the engine says that it is done, and {len(self._owed)} samples were not delivered, the first of "
                f"them {min(self._owed)}. Run the same command again for them; see the engine's log if that stays."
            )

    def _deliver(self) -> None:
        self._add(self._next())
        while self._owed:
            answer = self._engine.begin("advance", STEP_SECONDS)
            self._settle()
            jobs = self._next()
            self._last = answer()
            if not jobs and not self._last.waiting:
                self._settle()
                jobs = self._next()
                if not jobs:
                    break
            self._add(jobs)

    def _settle(self) -> None:
        """Note the last answer, once: what cannot be noted is not tried again."""
        last, self._last = self._last, None
        if last is not None:
            self._take(last)

    def _next(self) -> list[Job]:
        """What there is room for."""
        jobs: list[Job] = []
        queued = sum(self._owed.values())
        while queued < QUEUED_TOKENS and len(self._owed) < QUEUED_SAMPLES:
            job = next(self._jobs, None)
            if job is None:
                break
            jobs.append(job)
            self._owed[job.index] = len(job.token_ids)
            queued += len(job.token_ids)
        return jobs

    def _add(self, jobs: list[Job]) -> None:
        if jobs:
            self._engine.call("add", jobs)

    def _take(self, progress: Progress) -> None:
        for delivered in progress.delivered:
            self._require_asked_for(delivered)
        self._note(progress)

    def _require_asked_for(self, delivered: Delivered) -> None:
        tokens = self._owed.pop(delivered.index, None)
        expected = (tokens, self._file(delivered.index))
        if (delivered.tokens, delivered.file) != expected:
            raise IncompleteSampleError(
                f"sample {delivered.index} came as {delivered.file} of {delivered.tokens} tokens, and was asked for "
                f"as {expected[1]} of {expected[0]}; or it came twice."
            )
