"""The loop of an extraction, over an engine that is played: what it is asked, when, and what comes of the answers."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, cast

import pytest

from harness.errors import DamagedStatesError, IncompleteSampleError, UsageError, WorkerDiedError
from harness.extraction import drive
from harness.extraction.drive import Drive
from harness.extraction.jobs import Delivered, Job, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.remote import RemoteEngine

TOKENS = 10
LOST = -1


class Played:
    """An engine that delivers so many samples a step, and keeps a diary."""

    def __init__(self, diary: list[str], a_step: int, damage: Callable[[int], int] = lambda index: index) -> None:
        self._diary = diary
        self._a_step = a_step
        self._damage = damage
        self._waiting: deque[int] = deque()
        self.most = 0
        # What is raised instead of the n-th answer to a method.
        self.raises: dict[tuple[str, int], BaseException] = {}
        self._asked: Counter[str] = Counter()

    def _ask(self, method: str) -> None:
        self._asked[method] += 1
        if error := self.raises.get((method, self._asked[method])):
            raise error

    def call(self, method: str, *arguments: Any) -> Any:
        self._ask(method)
        if method == "add":
            (jobs,) = arguments
            self._waiting += [job.index for job in jobs]
            self.most = max(self.most, len(self._waiting))
            self._diary.append(f"add {len(jobs)}")
            return None
        assert method == "finish", method
        self._diary.append("finish")
        return _progress([], len(self._waiting))

    def begin(self, method: str, *_arguments: Any) -> Callable[[], Progress]:
        assert method == "advance", method
        self._ask(method)
        self._diary.append("advance")

        def answer() -> Progress:
            self._ask("answer")
            taken = [self._waiting.popleft() for _ in range(min(self._a_step, len(self._waiting)))]
            self._diary.append(f"delivered {len(taken)}")
            damaged = [self._damage(index) for index in taken]
            return _progress([index for index in damaged if index != LOST], len(self._waiting))

        return answer


def _progress(indices: list[int], waiting: int) -> Progress:
    delivered = tuple(
        Delivered(index=index, file=f"{index}.safetensors", tokens=TOKENS, bytes=1, rank=0) for index in indices
    )
    return Progress(delivered=delivered, waiting=waiting, tokens=TOKENS * len(indices), bytes=len(indices), stalled=0)


def _jobs(count: int) -> list[Job]:
    return [Job(index=index, token_ids=array("q", range(TOKENS))) for index in range(count)]


def _drive(engine: Played, count: int, diary: list[str]) -> list[int]:
    noted: list[int] = []

    def note(progress: Progress) -> None:
        if progress.delivered:
            diary.append(f"noted {len(progress.delivered)}")
        noted.extend(one.index for one in progress.delivered)

    try:
        Drive(cast("RemoteEngine", engine), iter(_jobs(count)), "connector", note).run()
    finally:
        diary.append(f"{len(noted)} in all")
    return noted


def test_what_is_delivered_is_noted_while_the_next_is_computed() -> None:
    diary: list[str] = []
    assert _drive(Played(diary, a_step=2), 4, diary) == [0, 1, 2, 3]
    assert diary == [
        *("add 4", "advance", "delivered 2"),
        *("advance", "noted 2", "delivered 2"),
        *("noted 2", "finish", "4 in all"),
    ]


@pytest.mark.parametrize("a_step", [1, 3, 5, 100])
@pytest.mark.parametrize("queued", [TOKENS, 3 * TOKENS, 5 * TOKENS, 1000 * TOKENS])
def test_every_sample_is_noted_once_however_many_are_queued(
    monkeypatch: pytest.MonkeyPatch, a_step: int, queued: int
) -> None:
    monkeypatch.setattr(drive, "QUEUED_TOKENS", queued)
    diary: list[str] = []
    engine = Played(diary, a_step)
    assert _drive(engine, 37, diary) == list(range(37))
    assert engine.most <= queued // TOKENS, diary


def test_no_samples_are_no_steps() -> None:
    diary: list[str] = []
    assert _drive(Played(diary, a_step=1), 0, diary) == []
    assert "advance" not in diary


def test_what_came_before_an_error_is_noted() -> None:
    diary: list[str] = []

    def damage(index: int) -> int:
        if index == 3:
            raise DamagedStatesError("row 1 is empty")
        return index

    with pytest.raises(DamagedStatesError):
        _drive(Played(diary, 3, damage), 5, diary)
    assert diary[-3:] == ["noted 3", "delivered 2", "3 in all"]


@pytest.mark.parametrize("error", [WorkerDiedError("it is gone"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("place", [("add", 2), ("add", 3), ("advance", 2), ("answer", 2), ("finish", 1)], ids=str)
def test_what_has_been_answered_is_noted_wherever_an_error_comes(
    monkeypatch: pytest.MonkeyPatch, place: tuple[str, int], error: BaseException
) -> None:
    monkeypatch.setattr(drive, "QUEUED_TOKENS", 4 * TOKENS)
    diary: list[str] = []
    engine = Played(diary, 2)
    engine.raises[place] = error
    with pytest.raises(type(error)):
        _drive(engine, 12, diary)
    delivered, noted = (
        sum(int(line.split()[1]) for line in diary if line.startswith(word)) for word in ("delivered", "noted")
    )
    assert noted == delivered > 0, diary


def test_what_has_been_answered_is_noted_if_the_prompts_cannot_be_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "QUEUED_TOKENS", 4 * TOKENS)
    diary: list[str] = []
    noted: list[int] = []

    def jobs() -> Iterator[Job]:
        yield from _jobs(4)
        raise UsageError("prompts.jsonl:5 was changed")

    engine = cast("RemoteEngine", Played(diary, 4))
    with pytest.raises(UsageError):
        Drive(
            engine, jobs(), "connector", lambda progress: noted.extend(one.index for one in progress.delivered)
        ).run()
    assert noted == [0, 1, 2, 3], diary


def test_what_cannot_be_noted_is_not_noted_twice() -> None:
    diary: list[str] = []
    tried: list[int] = []

    def full(progress: Progress) -> None:
        tried.append(len(progress.delivered))
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        Drive(cast("RemoteEngine", Played(diary, 2)), iter(_jobs(4)), "connector", full).run()
    assert tried == [2], diary


@pytest.mark.parametrize("index", [99, 0])
def test_sample_that_nobody_asked_for_or_that_comes_twice_is_an_error(index: int) -> None:
    diary: list[str] = []
    with pytest.raises(IncompleteSampleError, match=f"sample {index} came as"):
        _drive(Played(diary, 2, lambda given: index if given == 2 else given), 4, diary)


def test_engine_that_is_done_too_early_is_an_error() -> None:
    diary: list[str] = []
    with pytest.raises(IncompleteSampleError, match=r"1 samples were not delivered, the first of them 2\."):
        _drive(Played(diary, 2, lambda given: LOST if given == 2 else given), 4, diary)
