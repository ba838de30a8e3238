"""The rounds: every way's engine is booted once and stays up, and the ways take turns."""

from __future__ import annotations

import contextlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.errors import CaptureError
from harness.remote import RemoteEngine

from . import figures, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from .ways import Plan, Way

BOOT_SECONDS = 180.0


@dataclass
class Lane:
    """A way in one run: its engine, its rounds, and why it has no more of them."""

    way: Way
    engine: RemoteEngine
    folder: Path
    seconds: list[float] = field(default_factory=list)
    boot_seconds: float = 0.0
    file_bytes: int = 0
    error: str = ""

    def facts(self, plan: Plan) -> dict[str, Any]:
        return {
            "title": self.way.title,
            **figures.summary(plan.round_tokens, self.seconds),
            "seconds": [round(seconds, 4) for seconds in self.seconds],
            "boot_seconds": round(self.boot_seconds, 1),
            **({"file_bytes_a_round": self.file_bytes} if self.way.writes else {}),
            **({"error": self.error} if self.error else {}),
        }


class Race:
    """All ways of one run.

    A way that fails is out, with its last words, and the others go on.
    """

    def __init__(
        self, plan: Plan, lanes: Sequence[Lane], prompts: list[list[int]], say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._prompts = prompts
        self._say = say
        self.lanes = lanes

    def boot(self) -> None:
        """Boot every engine: at the same time on a GPU, where imports are most of it; on CPUs one by one."""
        with ThreadPoolExecutor(len(self.lanes) if self._plan.device == "cuda" else 1) as pool:
            list(pool.map(self._boot, self.lanes))

    def _boot(self, lane: Lane) -> None:
        with self._in(lane):
            lane.engine.open(BOOT_SECONDS)
            lane.boot_seconds = lane.engine.timings["open"]
            self._say(f"{lane.way.name} is up after {lane.boot_seconds:.0f} s")

    def warm_up(self) -> None:
        """Two steps' worth of prompts a way, not measured: kernels are compiled, buffers are there."""
        for lane in self._going():
            with self._in(lane):
                took = self._deliver(lane, self._prompts[: 2 * max(1, self._plan.shape.budget // self._plan.tokens)])
                self._say(f"{lane.way.name} warm-up {took:.2f} s")

    def run(self, rounds: int, patience: float, deadline: float) -> Iterator[None]:
        """Measure; yields after every round of all ways.

        A way has had its share once its rounds took ``patience`` seconds; none begins after ``deadline``, as
        `time.monotonic` counts.
        """
        for number in range(rounds):
            for lane in self._going():
                if sum(lane.seconds) < patience and time.monotonic() < deadline:
                    with self._in(lane):
                        self._measure(lane, number)
            yield

    def _measure(self, lane: Lane, number: int) -> None:
        # An engine that has been idle sleeps for up to a tenth of a second between two looks for work.
        self._deliver(lane, self._prompts[:1])
        lane.seconds.append(self._deliver(lane, self._prompts))
        rate = self._plan.round_tokens / lane.seconds[-1]
        self._say(f"{lane.way.name} round {number + 1}: {lane.seconds[-1]:.2f} s, {rate:,.0f} tok/s")

    def _deliver(self, lane: Lane, prompts: list[list[int]]) -> float:
        seconds: float = lane.engine.call("deliver", prompts, str(lane.folder))
        if lane.way.writes:
            shape = (self._plan.tokens, len(self._plan.shape.layers), self._plan.shape.config["hidden_size"])
            lane.file_bytes = written.check(lane.folder, len(prompts), shape)
            for path in lane.folder.iterdir():
                path.unlink()
        return seconds

    def _going(self) -> Iterator[Lane]:
        return (lane for lane in self.lanes if not lane.error)

    @contextlib.contextmanager
    def _in(self, lane: Lane) -> Iterator[None]:
        try:
            yield
        except CaptureError as error:
            lane.error = f"{type(error).__name__}: {error}"
            lane.engine.close()
            shutil.rmtree(lane.folder, ignore_errors=True)
            self._say(f"{lane.way.name} FAILED: {lane.error}\n{lane.engine.tail()}")


@contextlib.contextmanager
def opened(
    plan: Plan, ways: Sequence[Way], *, work: Path, tmpfs: Path, variables: Mapping[str, str]
) -> Iterator[list[Lane]]:
    """A lane a way, its engine not booted yet; in the end, neither process nor file is left."""
    lanes: list[Lane] = []
    try:
        for way in ways:
            folder = tmpfs / way.name
            folder.mkdir()
            spec = plan.spec(way, work / "model", folder)
            log = work / f"{way.name}.log"
            lanes.append(Lane(way, RemoteEngine(way.client, spec, log=log, variables=variables), folder))
        yield lanes
    finally:
        with ThreadPoolExecutor(max(1, len(lanes))) as pool:
            list(pool.map(lambda lane: lane.engine.close(), lanes))
        shutil.rmtree(tmpfs, ignore_errors=True)
