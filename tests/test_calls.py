from __future__ import annotations

import os
from collections import deque
from typing import Any

import pytest

from harness.clients.calls import Calls
from harness.errors import CaptureError, EngineOutOfStepError, ReplyTimeoutError, WorkerDiedError, WorkerFailedError

RAISED = RuntimeError("raised")


class Ranks:
    """Two ranks as vLLM has them: a queue of replies each; the first error is raised, what is behind it stays."""

    def __init__(self) -> None:
        self.queues: list[deque[Any]] = [deque(), deque()]
        self.sent: list[tuple[str, list[Any]]] = []
        self.failing: dict[int, str] = {}
        self.late: set[int] = set()

    def reply(self, *replies: Any) -> list[Any]:
        for queue, reply in zip(self.queues, replies, strict=True):
            queue.append(reply)
        read = []
        for rank, queue in enumerate(self.queues):
            if rank in self.late:
                raise TimeoutError("RPC call timed out.")
            reply = queue.popleft()
            if isinstance(reply, Exception):
                raise reply
            read.append(reply)
        return read

    def send(self, method: str, arguments: tuple[Any, ...]) -> list[Any]:
        assert method == "harness_call"
        number, wanted, given = arguments
        self.sent.append((wanted, given))
        return self.reply(
            *(
                {"number": number, "error": self.failing[rank]}
                if rank in self.failing
                else {"number": number, "reply": f"{wanted} {rank}"}
                for rank in range(2)
            )
        )


@pytest.fixture
def ranks() -> Ranks:
    return Ranks()


@pytest.fixture
def calls(ranks: Ranks) -> Calls:
    made = Calls(ranks.send)
    made.workers = [os.getpid()]
    return made


def _bare(calls: Calls, ranks: Ranks, *replies: Any) -> list[Any]:
    with calls.watched():
        return ranks.reply(*replies)


def test_every_ranks_reply_in_order(calls: Calls, ranks: Ranks) -> None:
    assert calls.ask("one", 1, 2) == ["one 0", "one 1"]
    assert calls.ask("two") == ["two 0", "two 1"]
    assert ranks.sent == [("one", [1, 2]), ("two", [])]


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ({0: "KeyError: 1"}, "rank 0: KeyError: 1"),
        ({1: "KeyError: 1"}, "rank 1: KeyError: 1"),
        ({0: "KeyError: 1", 1: "OSError: full"}, "rank 0: KeyError: 1; rank 1: OSError: full"),
    ],
)
def test_ranks_that_raise_are_named_and_the_engine_goes_on(
    calls: Calls, ranks: Ranks, failing: dict[int, str], said: str
) -> None:
    ranks.failing = failing
    with pytest.raises(WorkerFailedError) as caught:
        calls.ask("one")
    assert str(caught.value) == said
    ranks.failing = {}
    assert calls.ask("two") == ["two 0", "two 1"]


def test_reply_that_a_bare_call_left_behind_is_refused_and_so_is_every_later_one(calls: Calls, ranks: Ranks) -> None:
    with pytest.raises(WorkerFailedError):
        _bare(calls, ranks, RAISED, "left behind")
    for _again in range(3):
        with pytest.raises(EngineOutOfStepError, match=r"rank 1 replied .*open a new one"):
            calls.ask("one")
    assert len(ranks.queues[1]) == 1


def test_error_that_a_bare_call_left_behind_is_refused(calls: Calls, ranks: Ranks) -> None:
    with pytest.raises(WorkerFailedError):
        _bare(calls, ranks, RAISED, RuntimeError("of the other rank"))
    with pytest.raises(EngineOutOfStepError, match=r"of the other rank.*open a new one"):
        calls.ask("one")


def test_last_rank_leaves_nothing_behind(calls: Calls, ranks: Ranks) -> None:
    with pytest.raises(WorkerFailedError):
        _bare(calls, ranks, "read", RAISED)
    assert calls.ask("one") == ["one 0", "one 1"]


@pytest.mark.parametrize("bare", [False, True])
def test_after_a_late_reply_no_call_is_made(calls: Calls, ranks: Ranks, bare: bool) -> None:
    ranks.late = {0}
    with pytest.raises(ReplyTimeoutError, match="RPC call timed out"):
        _bare(calls, ranks, "late", "late") if bare else calls.ask("one")
    ranks.late = set()
    sent = len(ranks.sent)
    for _again in range(2):
        with pytest.raises(EngineOutOfStepError, match=r"RPC call timed out.*open a new one"):
            calls.ask("two")
    assert len(ranks.sent) == sent


def _begun(ranks: Ranks, made: list[str]) -> Any:
    def begin(method: str, arguments: tuple[Any, ...]) -> Any:
        made.append("begun")

        def wait() -> list[Any]:
            made.append("waited")
            return ranks.send(method, arguments)

        return wait

    return begin


def test_a_call_that_does_not_wait_gives_its_replies_when_asked(calls: Calls, ranks: Ranks) -> None:
    made: list[str] = []
    replies = calls.begin(_begun(ranks, made), "one", 1)
    assert made == ["begun"]
    assert replies() == ["one 0", "one 1"]
    assert made == ["begun", "waited"]


def test_a_call_that_does_not_wait_is_refused_the_reply_of_another(calls: Calls, ranks: Ranks) -> None:
    with pytest.raises(WorkerFailedError):
        _bare(calls, ranks, RAISED, "left behind")
    replies = calls.begin(_begun(ranks, []), "one")
    with pytest.raises(EngineOutOfStepError, match=r"rank 1 replied .*open a new one"):
        replies()


def test_a_call_that_does_not_wait_and_a_late_reply_end_the_engine(calls: Calls, ranks: Ranks) -> None:
    ranks.late = {0}
    made: list[str] = []
    with pytest.raises(ReplyTimeoutError, match="RPC call timed out"):
        calls.begin(_begun(ranks, made), "one")()
    with pytest.raises(EngineOutOfStepError, match="open a new one"):
        calls.begin(_begun(ranks, made), "two")
    assert made == ["begun", "waited"], "no later call is made"


def test_an_executor_that_gives_nothing_earlier_and_the_error_of_another_call(calls: Calls, ranks: Ranks) -> None:
    with pytest.raises(WorkerFailedError):
        _bare(calls, ranks, RAISED, RuntimeError("of the other rank"))

    def begin(method: str, arguments: tuple[Any, ...]) -> Any:
        replies = ranks.send(method, arguments)
        return lambda: replies

    with pytest.raises(EngineOutOfStepError, match=r"of the other rank.*open a new one"):
        calls.begin(begin, "one")


def test_what_a_capture_leaves_half_done_ends_the_engine(calls: Calls, ranks: Ranks) -> None:
    with pytest.raises(WorkerFailedError), calls.watched(fatal=(CaptureError,)):
        raise RAISED
    with pytest.raises(EngineOutOfStepError, match="RuntimeError: raised"):
        calls.ask("one")
    assert ranks.sent == []


def test_a_death_is_told_again(calls: Calls, ranks: Ranks, dead: int) -> None:
    with pytest.raises(WorkerFailedError):
        _bare(calls, ranks, RAISED, "left behind")
    calls.workers = [os.getpid(), dead]
    for _again in range(2):  # Though a reply that was left behind is there to be read.
        with pytest.raises(WorkerDiedError, match=f"worker process {dead} has ended"):
            calls.ask("one")
    assert len(ranks.sent) == 1
