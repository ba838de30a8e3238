"""What an extraction says while it runs: a live line on a terminal, a JSON object a line anywhere else."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

# Between two lines of progress.
LINE_SECONDS = 5.0
# The rate is that of the last so many seconds: a resumed run's average says nothing about when it ends.
RATE_SECONDS = 30.0


class Meter:
    """How far an extraction is, in samples, tokens and bytes, and how fast."""

    def __init__(self, samples: int, tokens: int) -> None:
        """What there is to do: samples and tokens."""
        self.samples = samples
        self.tokens = tokens
        self.done = {"samples": 0, "tokens": 0, "bytes": 0}
        self.stalled = 0.0
        self.start()

    def start(self) -> None:
        """Time counts from here."""
        self._began = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque([(self._began, 0)])

    def add(self, *, samples: int, tokens: int, size: int, stalled: float) -> None:
        """More was delivered: ``size`` in bytes, ``stalled`` the seconds that the forward waited for the files."""
        for name, count in (("samples", samples), ("tokens", tokens), ("bytes", size)):
            self.done[name] += count
        self.stalled += stalled
        now = time.monotonic()
        self._seen.append((now, self.done["tokens"]))
        while self._seen[0][0] < now - RATE_SECONDS and self._seen[1][0] < now:
            self._seen.popleft()

    @property
    def seconds(self) -> float:
        """How long it has gone on, or went on, to the last that was delivered."""
        return self._seen[-1][0] - self._began

    @property
    def rate(self) -> float:
        """Tokens a second, lately."""
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def facts(self) -> dict[str, Any]:
        """All of it as plain data; ``eta_seconds`` is None while nothing has come."""
        rate = self.rate
        left = self.tokens - self.done["tokens"]
        return {
            **self.done,
            "of_samples": self.samples,
            "of_tokens": self.tokens,
            "tokens_per_second": round(rate, 1),
            "stalled_seconds": round(self.stalled, 2),
            "seconds": round(self.seconds, 2),
            "eta_seconds": round(left / rate) if rate else None,
        }


class Display(Protocol):
    """Where an extraction says things."""

    def say(self, event: str, text: str, **facts: Any) -> None:
        """Something happened: ``text`` for a person, ``facts`` for a program."""

    def progress(self, meter: Meter) -> None:
        """It went on."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Lines:
    """JSON objects, a line each, every one with its ``event``."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def say(self, event: str, text: str, **facts: Any) -> None:
        self._print({"event": event, **facts, "text": text})

    def progress(self, meter: Meter) -> None:
        if time.monotonic() - self._told >= LINE_SECONDS:
            self._told = time.monotonic()
            self._print({"event": "progress", **meter.facts()})

    @staticmethod
    def _print(line: dict[str, Any]) -> None:
        try:
            print(json.dumps(line), flush=True)
        except BrokenPipeError:  # Nobody reads on: that is no reason to stop.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None: ...


class Live:
    """A line that changes, and the other lines above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} samples"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(highlight=False),
            transient=True,
        )
        self._task: Any = None

    def say(self, event: str, text: str, **facts: Any) -> None:
        del event, facts
        self._progress.console.print(text, markup=False, soft_wrap=True)

    def progress(self, meter: Meter) -> None:
        if self._task is None:
            self._task = self._progress.add_task("", total=meter.samples, figures="")
        self._progress.update(self._task, completed=meter.done["samples"], figures=figures(meter))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()


def figures(meter: Meter) -> str:
    """How it goes, in a few words."""
    eta = meter.facts()["eta_seconds"]
    ends = "" if eta is None else f", ETA {duration(eta)}"
    return f"{meter.rate:,.0f} tok/s, {_written(meter)}{ends}"


def summary(meter: Meter) -> str:
    """How it went, in a few words."""
    done, seconds = meter.done, max(meter.seconds, 1e-9)
    return (
        f"{done['samples']:,} samples, {done['tokens']:,} tokens, {_written(meter)} in {duration(seconds)}: "
        f"{done['tokens'] / seconds:,.0f} tok/s"
    )


def _written(meter: Meter) -> str:
    stalled = f", stalled {meter.stalled:.1f} s" if meter.stalled else ""
    return f"{meter.done['bytes'] / 2**20:,.1f} MiB{stalled}"


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def display(*, as_json: bool) -> Display:
    """What fits standard output."""
    return Lines() if as_json or not sys.stdout.isatty() else Live()
