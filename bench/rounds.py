"""The rounds: every engine is booted once and stays up, and the ways take turns."""

from __future__ import annotations

import contextlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import CaptureError
from harness.remote import RemoteEngine

from . import figures, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .ways import Plan, Way

BOOT_SECONDS = 180.0
CLIENT = "bench.engines"
UNLINKERS = 8


@dataclass
class Lane:
    """A way in one run: its engine, which others may share, its rounds, and why it has no more of them."""

    way: Way
    engine: RemoteEngine
    folder: Path
    rounds: list[dict[str, float]] = field(default_factory=list)
    file_bytes: int = 0
    error: str = ""

    @property
    def seconds(self) -> list[float]:
        return [figures["seconds"] for figures in self.rounds]

    def facts(self, plan: Plan) -> dict[str, Any]:
        """What is kept of it."""
        return {
            "title": self.way.title,
            **figures.summary(plan.round_tokens(self.way), self.seconds),
            "tokens_a_round": plan.round_tokens(self.way),
            "rounds": self.rounds,
            "boot_seconds": round(self.engine.timings.get("open", 0.0), 1),
            **({"file_bytes_a_round": self.file_bytes} if self.way.writes else {}),
            **({"error": self.error} if self.error else {}),
        }


@contextlib.contextmanager
def opened(
    plan: Plan, ways: Sequence[Way], *, work: Path, tmpfs: Path, variables: Mapping[str, str]
) -> Iterator[list[Lane]]:
    """A lane a way, its engine not booted yet; in the end, neither process nor file is left."""
    engines: dict[str, RemoteEngine] = {}
    lanes = []
    try:
        for way in ways:
            folder = tmpfs / way.name
            folder.mkdir()
            if way.engine not in engines:
                spec = plan.spec(way, work / "model", folder)
                log = work / f"{way.engine}.log"
                engines[way.engine] = RemoteEngine(f"{CLIENT}:{way.engine}", spec, log=log, variables=variables)
            lanes.append(Lane(way, engines[way.engine], folder))
        yield lanes
    finally:
        with ThreadPoolExecutor(max(1, len(engines))) as pool:
            list(pool.map(RemoteEngine.close, engines.values()))
        shutil.rmtree(tmpfs, ignore_errors=True)


class Race:
    """All ways of one run.

    A way that fails is out, with its last words and those that share its engine, and the others go on.
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
        first: dict[int, Lane] = {}
        for lane in self.lanes:
            first.setdefault(id(lane.engine), lane)
        with ThreadPoolExecutor(len(first) if self._plan.device == "cuda" else 1) as pool:
            try:
                list(pool.map(self._boot, first.values()))
            except BaseException:  # Interrupted: whoever waits for an engine to come up need not any more.
                for lane in first.values():
                    lane.engine.end()
                raise

    def _boot(self, lane: Lane) -> None:
        with self._in(lane):
            lane.engine.open(BOOT_SECONDS)
            self._say(f"{lane.way.name} is up after {lane.engine.timings['open']:.0f} s")

    def warm_up(self) -> None:
        """Not measured: kernels are compiled, buffers are there.

        Two steps' worth of prompts where nothing is written. Else a round: a virtual machine gets memory from its
        host when it is touched for the first time, which no later file pays for. All of them where they stay: what
        is there in the first round is there in the last.
        """
        steps = 2 * max(1, self._plan.shape.budget // self._plan.tokens)
        for lane in self._going():
            count = self._plan.round_prompts(lane.way) if lane.way.writes else steps
            with self._in(lane):
                took = self._deliver(lane, self._prompts if lane.way.keeps else self._prompts[:count])
                self._say(f"{lane.way.name} warm-up {took['seconds']:.2f} s")

    def run(self, rounds: int, patience: float, deadline: float) -> Iterator[None]:
        """Measure; yields after every round of all ways.

        A way has had its share once its rounds took ``patience`` seconds; none begins after ``deadline``, as
        `time.monotonic` counts.
        """
        for number in range(1, rounds + 1):
            for lane in self._going():
                if sum(lane.seconds) < patience and time.monotonic() < deadline:
                    with self._in(lane):
                        self._measure(lane, number)
            yield

    def _measure(self, lane: Lane, number: int) -> None:
        # An engine that has been idle sleeps for up to a tenth of a second between two looks for work.
        self._deliver(lane, self._prompts[:1])
        took = self._deliver(lane, self._prompts[: self._plan.round_prompts(lane.way)])
        lane.rounds.append(took)
        rate = self._plan.round_tokens(lane.way) / took["seconds"]
        self._say(f"{lane.way.name} round {number}: {took['seconds']:.2f} s, {rate:,.0f} tok/s")

    def _deliver(self, lane: Lane, prompts: list[list[int]]) -> dict[str, float]:
        took: dict[str, float] = lane.engine.call("deliver", prompts, str(lane.folder), **lane.way.how)
        if lane.way.writes:
            count = len(self._prompts if lane.way.keeps else prompts)
            shape = (self._plan.tokens, len(self._plan.shape.layers), self._plan.shape.hidden_size)
            lane.file_bytes = written.check(lane.folder, count, shape)
        if not lane.way.keeps:
            with ThreadPoolExecutor(UNLINKERS) as pool:  # Giving pages back takes as long as getting them.
                list(pool.map(Path.unlink, lane.folder.iterdir()))
        return {name: round(figure, 4) for name, figure in took.items()}

    def _going(self) -> Iterator[Lane]:
        return (lane for lane in self.lanes if not lane.error)

    @contextlib.contextmanager
    def _in(self, lane: Lane) -> Iterator[None]:
        try:
            yield
        except CaptureError as error:
            lane.engine.close()
            for one in self.lanes:
                if one.engine is lane.engine:
                    one.error = f"{type(error).__name__}: {error}"
            self._say(f"{lane.way.name} FAILED: {lane.error}\n{lane.engine.tail(lines=40)}")
