"""The calls of one engine to its workers, such that no reply is taken for that of another call.

``collective_rpc`` reads one reply a rank and raises at the first error. What the ranks behind it replied stays in
their queues, and the next call takes it for its own; so does what comes after a timeout
(v1/executor/multiproc_executor.py, 0.11.0 to 0.32.0; `test_call_after_a_raise` shows it). Nothing that
``collective_rpc`` offers reads such a reply away, so an engine out of step stays so.
"""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import (
    CaptureError,
    EngineOutOfStepError,
    ReplyTimeoutError,
    WorkerDiedError,
    WorkerFailedError,
)

from .failures import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ADVICE = "Close this engine and open a new one."


class Send(Protocol):
    """``collective_rpc``: one reply a rank."""

    def __call__(self, method: str, arguments: tuple[Any, ...]) -> list[Any]: ...


class Begin(Protocol):
    """``collective_rpc`` that does not wait; gives what does, for one reply a rank."""

    def __call__(self, method: str, arguments: tuple[Any, ...]) -> Callable[[], list[Any]]: ...


class Calls:
    """What passes between a client and its workers.

    ``workers`` are their pids, filled in by the client once it knows them.
    """

    def __init__(self, send: Send) -> None:
        self.workers: list[int] = []
        self._send = send
        self._numbers = itertools.count(1)
        self._broken: CaptureError | None = None

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """What every rank replies to this very call, in rank order.

        Raises:
            EngineOutOfStepError: a reply belongs to an earlier call.
            WorkerFailedError: ranks raised, and are named. All replies have been read: the engine can go on.
            WorkerDiedError: a worker has ended.
            ReplyTimeoutError: a reply is late. From then on every call raises `EngineOutOfStepError`.
        """
        return self.begin(lambda name, given: partial(self._send, name, given), method, *arguments)()

    def begin(self, begin: Begin, method: str, *arguments: Any) -> Callable[[], list[Any]]:
        """Have every rank called in a way that does not wait.

        Returns:
            What gives the replies, as `ask` does, and raises what that does. To be called once, in turn with those
            of other calls.
        """
        if isinstance(self._broken, WorkerDiedError):
            raise self._broken
        if self._broken is not None:
            raise EngineOutOfStepError(f"an earlier call did not come to its end: {self._broken} {ADVICE}")
        number = next(self._numbers)
        with self._in_step(method):
            wait = begin("harness_call", (number, method, list(arguments)))
        return partial(self._replies, wait, number, method)

    @contextlib.contextmanager
    def _in_step(self, method: str) -> Iterator[None]:
        try:
            with self.watched():
                yield
        except WorkerFailedError as error:
            # harness_call does not raise: this is what a rank replied to somebody else's call.
            raise EngineOutOfStepError(f"{method} got what belongs to an earlier call: {error}. {ADVICE}") from error

    def _replies(self, wait: Callable[[], list[Any]], number: int, method: str) -> list[Any]:
        with self._in_step(method):
            replies = wait()
            _require_own(replies, number)
        failed = [f"rank {rank}: {reply['error']}" for rank, reply in enumerate(replies) if "error" in reply]
        if failed:
            raise WorkerFailedError("; ".join(failed))
        return [reply["reply"] for reply in replies]

    @contextlib.contextmanager
    def watched(self, fatal: tuple[type[CaptureError], ...] = (ReplyTimeoutError, WorkerDiedError)) -> Iterator[None]:
        """Translate what vLLM raises; after an error of a ``fatal`` kind, no later call is made."""
        try:
            with translated(self.workers):
                yield
        except fatal as error:
            self._broken = error
            raise


def _require_own(replies: list[Any], number: int) -> None:
    for rank, reply in enumerate(replies):
        if not isinstance(reply, dict) or reply.get("number") != number:
            raise LookupError(f"rank {rank} replied {reply!r:.80} to call {number}")
