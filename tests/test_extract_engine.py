"""The driver of an extraction, with workers that write files and a scheduler of one prompt a step."""

from __future__ import annotations

import json
import os
from array import array
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from delivering import Delivering, states
from safetensors.numpy import load_file

from harness.clients import extract
from harness.clients.contract import EngineSpec
from harness.errors import (
    DeliveryError,
    EngineOutOfStepError,
    InvalidPromptError,
    ReplyTimeoutError,
    WorkerDiedError,
    WorkerFailedError,
)
from harness.extraction.jobs import Job, Tuning
from harness.extraction.layouts import Text
from harness.worker_calls import NumberedCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.adapters.base import Adapter


class Worker(NumberedCalls):
    """One of two ranks, without a model."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.made: Delivering | None = None
        self.exchanges = 0
        self.refusal = ""
        self.full: str | None = None

    def harness_identity(self) -> dict[str, Any]:
        return {"pid": os.getpid()}

    def harness_start(self, layers: list[int]) -> str | None:
        return self.full

    def harness_extract_start(self, number: int, folder: str, layout: str, tuning: Tuning) -> str:
        self.harness_extract_close()
        self.prefix = f"extract-{number}-"
        self.made = Delivering(Path(folder))
        return self.refusal

    def harness_extract_exchange(
        self, jobs: Sequence[tuple[int, bytes, bytes | None]], seconds: float
    ) -> dict[str, Any]:
        assert self.made is not None
        self.exchanges += 1
        for index, ids, mask in jobs:
            if index % 2 == self.rank:
                self.made.run.announce(index, Text(token_ids=ids, loss_mask=mask))
        return self.made.run.collect(seconds)

    def harness_extract_close(self) -> None:
        if self.made is not None:
            self.made.run.close()
            self.made = None

    def forward(self, request: str, prompt: Sequence[int]) -> None:
        assert request.startswith(self.prefix), "what an earlier run has left is not run"
        index = int(request.removeprefix(self.prefix))
        if index % 2 == self.rank and self.made is not None:
            self.made.run.begins(index, array("q", prompt).tobytes())
            self.made.forward(index, 0, len(prompt))
            self.made.run.ends(index)


class FakeAdapter:
    """Scheduler and executor in one: a prompt a step, on both ranks. A batch is the prompt, or none."""

    def __init__(self) -> None:
        self.workers = [Worker(0), Worker(1)]
        self.requests: deque[tuple[str, Sequence[int]]] = deque()
        self.under_way = 0
        self.most = 0
        self.begun = 0
        self.unheard = 0
        self.most_unheard = 0
        self.begun_before_a_reply: list[int] = []
        self.stuck = False
        self.failing_while_asked = False
        self.broken: Exception | None = None
        self.scheduler = self

    def rpc(self, method: str, arguments: tuple[Any, ...] = (), **_named: Any) -> list[Any]:
        return [getattr(worker, method)(*arguments) for worker in self.workers]

    def begin_rpc(self, method: str, arguments: tuple[Any, ...]) -> Callable[[], list[Any]]:
        replies = self.rpc(method, arguments)
        begun = self.begun
        self.unheard += 1
        self.most_unheard = max(self.most_unheard, self.unheard)

        def wait() -> list[Any]:
            self.unheard -= 1
            self.begun_before_a_reply.append(self.begun - begun)
            return replies

        return wait

    def add(self, request_id: str, prompt: Sequence[int]) -> None:
        self.requests.append((request_id, prompt))
        self.most = max(self.most, len(self.requests))

    def abort(self, request_ids: Sequence[str]) -> None:
        self.requests = deque(one for one in self.requests if one[0] not in request_ids)

    def busy(self) -> bool:
        return bool(self.requests)

    def get_num_unfinished_requests(self) -> int:
        return len(self.requests) + self.under_way

    def schedule(self) -> Any:
        batch = [] if self.stuck or not self.requests else [self.requests.popleft()]
        self.under_way += len(batch)
        return SimpleNamespace(batch=batch, total_num_scheduled_tokens=sum(len(prompt) for _request, prompt in batch))

    def begin(self, scheduled: Any) -> Callable[[], None]:
        if self.broken is not None:
            raise self.broken
        self.begun += bool(scheduled.batch)
        for request, prompt in scheduled.batch:
            for worker in self.workers:
                worker.forward(request, prompt)
        return self._output

    def _output(self) -> None:
        if self.failing_while_asked and self.unheard:
            raise RuntimeError("the batch failed")

    def update_from_output(self, scheduled: Any, _output: None) -> None:
        self.under_way -= len(scheduled.batch)

    def close(self) -> None: ...


@pytest.fixture
def spec(tmp_path: Path) -> EngineSpec:
    config = {"num_hidden_layers": 4, "hidden_size": 8, "vocab_size": 1000}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return EngineSpec(
        model=str(tmp_path),
        layers=(2, 0),
        tensor_parallel_size=2,
        max_num_seqs=4,
        max_num_batched_tokens=1,
        timeout=5,
    )


@pytest.fixture
def adapter() -> FakeAdapter:
    return FakeAdapter()


@pytest.fixture
def engine(spec: EngineSpec, adapter: FakeAdapter) -> Iterator[extract.ExtractEngine]:
    opened = extract.ExtractEngine(spec, cast("Adapter", adapter), Tuning())
    opened._calls.workers = []  # They are this process.
    yield opened
    adapter.rpc("harness_extract_close")
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def jobs(count: int, length: int = 20, first: int = 0) -> list[Job]:
    return [Job(index=index, token_ids=array("q", range(length))) for index in range(first, first + count)]


def test_every_job_becomes_a_file_written_by_its_rank(engine: extract.ExtractEngine, folder: Path) -> None:
    engine.start(str(folder))
    engine.add(jobs(100))
    got = engine.finish()
    assert sorted((one.index, one.rank) for one in got.delivered) == [(index, index % 2) for index in range(100)]
    assert (got.waiting, got.tokens) == (0, 2000)
    assert got.bytes == sum(path.stat().st_size for path in folder.iterdir())
    for index in range(100):
        assert np.array_equal(load_file(folder / f"{index}.safetensors")["hidden_states"], states(index, 20))


def test_the_scheduler_is_fed_a_bounded_number_and_the_workers_are_asked_seldom(
    engine: extract.ExtractEngine, adapter: FakeAdapter, folder: Path
) -> None:
    engine.start(str(folder))
    engine.add(jobs(500, length=1))
    engine.finish()
    assert adapter.most <= extract.AHEAD + engine.spec.max_num_seqs, adapter.most
    assert adapter.workers[0].exchanges <= 500 // extract.AHEAD + 5, adapter.workers[0].exchanges


@pytest.fixture
def asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers are asked every few steps."""
    monkeypatch.setattr(extract, "time", Clock())
    monkeypatch.setattr(extract, "POLL_SECONDS", 0.1)


@pytest.mark.usefixtures("asked_often")
def test_while_the_workers_are_asked_the_next_batch_begins(
    engine: extract.ExtractEngine, adapter: FakeAdapter, folder: Path
) -> None:
    """Their reply comes behind the batch that is under way: the device would have nothing to do after that."""
    engine.start(str(folder))
    engine.add(jobs(50))
    assert len(engine.finish().delivered) == 50
    first, *others = adapter.begun_before_a_reply
    assert first == 0, "nothing was under way when the workers were told of the first ones"
    assert others.count(1) >= 5, others
    assert set(others) <= {0, 1}, "no reply is waited for longer than that"


@pytest.mark.usefixtures("asked_often")
def test_the_workers_are_asked_again_when_they_have_been_heard(
    engine: extract.ExtractEngine, adapter: FakeAdapter, folder: Path
) -> None:
    """One prompt a call, and room for many: whoever does not hear replies fills the workers' queue, and both wait."""
    object.__setattr__(engine.spec, "max_num_seqs", 256)
    engine.start(str(folder))
    engine.add(jobs(3, length=100))
    seen = 0
    while not adapter.under_way:
        seen += len(engine.advance(0.05).delivered)
    engine.add(jobs(50, length=100, first=3))
    assert seen + len(engine.finish().delivered) == 53
    assert adapter.most_unheard == 1, "calls under way at once"


@pytest.mark.usefixtures("asked_often")
def test_after_a_batch_that_failed_the_cause_is_what_is_told(
    engine: extract.ExtractEngine, adapter: FakeAdapter, folder: Path
) -> None:
    """Also while the workers are being asked: their reply is no batch."""
    engine.start(str(folder))
    engine.add(jobs(50))
    adapter.failing_while_asked = True
    with pytest.raises(WorkerFailedError, match="the batch failed"):
        engine.finish()
    with pytest.raises(EngineOutOfStepError, match="the batch failed"):
        engine.start(str(folder))


def test_nothing_is_under_way_once_a_run_is_finished(
    engine: extract.ExtractEngine, adapter: FakeAdapter, folder: Path
) -> None:
    """A sample may be in its file before the scheduler has heard of its forward."""
    engine.start(str(folder))
    engine.add(jobs(5))
    assert len(engine.finish().delivered) == 5
    assert (adapter.under_way, adapter.busy()) == (0, False)


def test_advance_hands_over_what_was_delivered_in_between(engine: extract.ExtractEngine, folder: Path) -> None:
    engine.start(str(folder))
    engine.add(jobs(30))
    seen: list[int] = []
    while len(seen) < 30:
        got = engine.advance(0.02)
        seen += [one.index for one in got.delivered]
        assert got.waiting == 30 - len(seen)
    assert sorted(seen) == list(range(30))
    assert engine.advance(5.0).delivered == (), "nothing waits: it returns at once"


def test_a_run_after_another_has_its_own_folder_and_indices(engine: extract.ExtractEngine, folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
        engine.start(str(folder / name))
        engine.add(jobs(3))
        assert len(engine.finish().delivered) == 3
        assert len(list((folder / name).iterdir())) == 3


def test_a_full_disk_is_raised_by_the_next_call_and_the_engine_goes_on_after_it(
    engine: extract.ExtractEngine, folder: Path
) -> None:
    (folder / "5.safetensors.partial").symlink_to("/dev/full")
    engine.start(str(folder))
    engine.add(jobs(200))
    with pytest.raises(DeliveryError, match=r"sample 5: cannot write to .* No space left on device"):
        engine.finish()
    (folder / "other").mkdir()
    engine.start(str(folder / "other"))
    engine.add(jobs(4))
    assert len(engine.finish().delivered) == 4


def test_a_folder_that_is_refused_by_any_rank(
    engine: extract.ExtractEngine, adapter: FakeAdapter, folder: Path
) -> None:
    adapter.workers[1].refusal = "cannot write to it"
    with pytest.raises(DeliveryError, match="cannot write to it"):
        engine.start(str(folder))


def test_device_without_room_for_states_is_told_once(spec: EngineSpec, adapter: FakeAdapter) -> None:
    for rank, worker in enumerate(adapter.workers):
        worker.full = f"vLLM has left {rank}. Lower it."
    with pytest.raises(WorkerFailedError, match=r"^vLLM has left 0\. Lower it\.$"):
        extract.ExtractEngine(spec, cast("Adapter", adapter), Tuning())


def test_jobs_that_cannot_be_run_are_refused_before_one_is_queued(
    engine: extract.ExtractEngine, folder: Path
) -> None:
    engine.start(str(folder))
    bad = Job(index=1, token_ids=array("q", (1, 2, 3)), loss_mask=array("q", (1,)))
    with pytest.raises(InvalidPromptError, match="job 1 has 3 tokens and a loss mask of 1"):
        engine.add([*jobs(1), bad])
    with pytest.raises(InvalidPromptError, match="prompt 0 is empty"):
        engine.add([Job(index=0, token_ids=array("q"))])
    assert engine.finish().delivered == ()


def test_a_scheduler_that_never_runs_a_prompt_is_an_error_in_time(
    spec: EngineSpec, adapter: FakeAdapter, folder: Path
) -> None:
    object.__setattr__(spec, "timeout", 0.2)
    stuck = extract.ExtractEngine(spec, cast("Adapter", adapter), Tuning())
    adapter.stuck = True
    stuck.start(str(folder))
    stuck.add(jobs(1))
    with pytest.raises(ReplyTimeoutError, match=r"for 0\.2 s, and 1 samples wait"):
        stuck.finish()
    adapter.rpc("harness_extract_close")


class Clock:
    """Time that goes on by a hundredth of a second whenever somebody looks, and when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now


def test_time_between_calls_is_no_time_in_which_nothing_moves(
    engine: extract.ExtractEngine, adapter: FakeAdapter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver may be stopped, or wait for a disk. What counts is the time in which the engine might have moved."""
    clock = Clock()
    monkeypatch.setattr(extract, "time", clock)
    engine.start(str(folder))
    clock.now += 1000
    engine.add(jobs(1))
    adapter.stuck = True
    for _call in range(4):
        clock.now += 1000
        assert engine.advance(1.0).waiting == 1
    began = clock.now
    with pytest.raises(ReplyTimeoutError, match="for 5 s"):
        engine.advance(1000.0)
    assert clock.now - began < 2.0, "the four calls before have taken a second each"


def test_after_a_step_that_failed_every_call_fails(
    engine: extract.ExtractEngine, adapter: FakeAdapter, folder: Path
) -> None:
    engine.start(str(folder))
    engine.add(jobs(10))
    adapter.broken = WorkerDiedError("worker process 7 has ended")
    with pytest.raises(WorkerDiedError):
        engine.finish()
    with pytest.raises(WorkerDiedError):
        engine.start(str(folder))


@pytest.mark.parametrize(
    ("capture", "extraction"),
    [
        (EngineSpec.extension, "harness.extraction.extension.ExtractExtension"),
        ("harness.repairs.EarlyActivationExtension", "harness.repairs.EarlyActivationExtractExtension"),
    ],
)
def test_a_builds_repair_goes_with_the_extraction(capture: str, extraction: str) -> None:
    assert extract.extension(capture) == extraction


@pytest.mark.parametrize(
    ("change", "said"),
    [({"pipeline_parallel_size": 2}, "pipeline stages"), ({"engine_core_process": True}, "EngineCore"), ({}, None)],
)
def test_what_the_client_refuses(change: dict[str, Any], said: str | None) -> None:
    spec = EngineSpec(model="", layers=(0,), **change)
    reason = extract.CLIENT.refuses(spec)
    assert (said is None and reason is None) or (said is not None and reason is not None and said in reason), reason
