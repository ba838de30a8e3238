"""``harness extract``: from a plan to a folder that is complete, or that the same command goes on with."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from harness.errors import CaptureError, DeliveryError
from harness.remote import RemoteEngine

from . import folder, journal, manifest, resume, stored
from .display import Meter, summary
from .drive import Drive
from .tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .display import Display
    from .jobs import Delivered, Progress
    from .plan import Plan

CLIENT = "extract"
# 540 GB take 23 minutes from a disk, and hours from a network.
BOOT_SECONDS = 4 * 3600.0
# What engines said, a folder a shard. All of it is removed: no folder of a user's may have its name.
LOGS = ".harness-logs"


class Extraction:
    """One run of the command on a folder that it has to itself."""

    def __init__(self, plan: Plan, display: Display) -> None:
        request = plan.request
        self._plan = plan
        self._display = display
        self._manifest = plan.manifest
        self._manifest_path = manifest.path(request.output, request.shard)
        self._journal_path = journal.path(request.output, request.shard)
        self._logs = request.output / f"{LOGS}{request.shard.suffix}"
        self._tally = Tally(request.shard.indices(len(plan.prompts)))

    def run(self, lock: int, work: Path, permit: Callable[[Display], Sequence[str]]) -> None:
        """Extract what is missing.

        Args:
            lock: the folder's, which the engine's processes hold on to.
            work: for temporary files.
            permit: raises unless this run may start; gives what let it, for the manifest.
        """
        lines = self._take_up()
        if self._there < self._wanted:
            self._manifest.evidence = list(dict.fromkeys((*self._manifest.evidence, *permit(self._display))))
        try:
            self._go_on(lines, lock, work)
        except CaptureError as error:
            raise type(error)(f"{error} {self._how_to_go_on()}") from error
        except OSError as error:  # Of the journal, the manifest or the logs.
            raise DeliveryError(
                f"cannot write to {self._plan.request.output}: {error.strerror}. Free space, or make it writable. "
                f"{self._how_to_go_on()}"
            ) from error
        except KeyboardInterrupt:
            self._display.say("interrupted", self._how_to_go_on())
            raise
        finally:
            self._leave()

    @property
    def _there(self) -> int:
        return self._tally.counts["samples"]

    @property
    def _wanted(self) -> int:
        return len(self._tally.own)

    def _take_up(self) -> bytes:
        """Count what is there; gives which lines of the journal are of it."""
        request = self._plan.request

        def tell(text: str) -> None:
            self._display.say("dropped", f"extracted again: {text}")

        try:
            lines = resume.take_up(
                request.output, request.shard, self._manifest, self._plan.prompts, self._tally, tell
            )
        except OSError as error:  # Of the journal or the manifest.
            raise DeliveryError(
                f"cannot go on in {request.output}: {error.strerror}; nothing was removed. Free space, or make it "
                f"readable and writable, and run the same command again."
            ) from error
        self._manifest.delivered = self._tally.counts
        if self._there:
            text = f"going on in {request.output}: {self._there} of {self._wanted} samples are there"
            self._display.say("resumed", text, kept=self._there, of=self._wanted)
        return lines

    def _go_on(self, lines: bytes, lock: int, work: Path) -> None:
        """Remove what does not count, and extract what is missing."""
        request = self._plan.request
        resume.clear(request.output, request.shard, request.layout, self._tally, lines)
        if self._there == self._wanted:
            self._complete()
            self._finish("complete", "every sample was there already: nothing was booted")
            return
        shutil.rmtree(self._logs, ignore_errors=True)
        self._logs.mkdir()
        self._extract(lock, work)

    def _extract(self, lock: int, work: Path) -> None:
        plan, log = self._plan, self._logs / "engine.log"
        missing = self._tally.missing
        meter = Meter(self._wanted - self._there, sum(plan.prompts.tokens[index] for index in missing()))
        with contextlib.closing(
            RemoteEngine(CLIENT, plan.spec, log=log, variables=plan.variables, held=(lock,), temporary=work)
        ) as engine:
            self._boot(engine)
            self._manifest.write(self._manifest_path)
            engine.call("start", str(plan.request.output), plan.request.layout)
            meter.start()
            with contextlib.closing(journal.Appender(self._journal_path)) as noted:
                Drive(
                    engine,
                    plan.prompts.jobs(missing()),
                    plan.request.layout,
                    lambda progress: self._note(progress, noted, meter),
                ).run()
            # Before the engine is closed, which takes a while: nothing that happens to it can take this back.
            self._complete()
        self._finish("done", summary(meter), **meter.facts())

    def _boot(self, engine: RemoteEngine) -> None:
        staged = self._plan.staged_bytes
        text = (
            f"booting {self._plan.request.model}; states take {staged:,} bytes of each rank's device, beside vLLM's "
            f"share; {engine.logs['stderr']} has more"
        )
        self._display.say("booting", text, staged_bytes=staged)
        engine.open(BOOT_SECONDS)
        seconds = round(engine.timings["boot"], 1)
        self._display.say("up", f"up after {seconds} s", seconds=seconds)

    def _note(self, progress: Progress, noted: journal.Appender, meter: Meter) -> None:
        """Count what was delivered."""
        records = [self._record(delivered) for delivered in progress.delivered]
        if records and self._manifest.dtype is None:
            first = self._plan.request.output / records[0].file
            self._manifest.dtype = stored.read(first, self._plan.request.layout).dtype
            self._manifest.write(self._manifest_path)
        noted.add(records)
        for record in records:
            self._tally.add(record)
        meter.add(samples=len(records), tokens=progress.tokens, size=progress.bytes, stalled=progress.stalled)
        self._display.progress(meter)

    def _record(self, delivered: Delivered) -> journal.Record:
        if self._plan.request.layout == "connector":
            # vLLM's own reader opens it first, and waits while a writer has it locked (`load_hidden_states`,
            # example_hidden_states_connector.py, 0.24.0 to 0.32.0).
            (self._plan.request.output / f"{delivered.file}.lock").touch()
        return journal.Record(
            index=delivered.index,
            file=delivered.file,
            tokens=delivered.tokens,
            bytes=delivered.bytes,
            ids=self._plan.prompts.digest(delivered.index).hex(),
            rank=delivered.rank,
        )

    def _complete(self) -> None:
        self._manifest.complete = True
        self._manifest.write(self._manifest_path)

    def _finish(self, event: str, text: str, **facts: float) -> None:
        """All of it is there: what engines said is of no more use."""
        shutil.rmtree(self._logs, ignore_errors=True)
        output = str(self._plan.request.output)
        self._display.say(event, f"{text}; {self._wanted} samples in {output}", output=output, complete=True, **facts)

    def _leave(self) -> None:
        """However it ended: nothing half written stays, and nothing at all of a run that delivered nothing."""
        if self._manifest.complete:
            return
        with contextlib.suppress(OSError):  # The disk may be full, or gone: that has been said.
            request = self._plan.request
            resume.sweep(request.output, request.shard, request.layout, self._tally)
            if self._there:
                self._manifest.write(self._manifest_path)
            else:
                self._manifest_path.unlink(missing_ok=True)
                self._journal_path.unlink(missing_ok=True)

    def _how_to_go_on(self) -> str:
        if not self._there:
            return "Nothing was delivered."
        return (
            f"{self._there} of {self._wanted} samples are whole in {self._plan.request.output}, and the same command "
            f"goes on from there."
        )


def extract(plan: Plan, display: Display, permit: Callable[[Display], Sequence[str]]) -> None:
    """Do it.

    Args:
        plan: what.
        display: where it is told.
        permit: raises unless this run may start; gives the digests of what let it.

    Raises:
        UsageError: the folder cannot be written, is of another extraction, or another run has it.
        CaptureError: the engine's, or `DeliveryError`: the journal or the manifest cannot be written. What was
            delivered by then stays, and the message says how much.
    """
    with folder.opened(plan.request.output, plan.request.shard) as (lock, work), display:
        Extraction(plan, display).run(lock, work, permit)
