"""Errors and time: what a client gets when a worker raises or hangs, and what the call after that gets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from harness.agreement import equal
from harness.errors import CaptureError, EngineOutOfStepError, ReplyTimeoutError, WorkerFailedError
from harness.findings import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.clients.contract import Sample
    from harness.shared_engine import SharedEngine

WORD = "raised by the drill"
# The limit of the call that hangs, and what the error may take beyond it.
LIMIT = 1.0
PATIENCE = 5.0
FOR_GOOD = 600.0


def _outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What a call gives, or what it raises."""
    try:
        return call(*arguments, **named)
    except CaptureError as error:
        return error


def _named(outcome: Any) -> str:
    return f"{type(outcome).__name__}: {outcome}" if isinstance(outcome, Exception) else repr(outcome)[:200]


def _equal(engine: SharedEngine, one: Sample, others: list[Sample]) -> bool:
    """Whether a call for one prompt has given that one's sample, and no other."""
    return [tuple(other.states) for other in others] == [engine.spec.layers] and equal(engine, one, others[0])


@pytest.mark.parametrize("who", ["first", "last", "every"])
def test_raising_worker_is_an_error(engine: SharedEngine, prompts: list[list[int]], who: str) -> None:
    """A worker method that raises on some ranks: `WorkerFailedError` names them, and the next capture is right."""
    engine.offer("ask")
    everybody = list(range(engine.spec.ranks))
    ranks = {"first": everybody[:1], "last": everybody[-1:], "every": everybody}[who]
    before = engine.shared_capture(prompts)[0]
    got = _outcome(engine.call, "ask", "harness_raise", ranks, WORD)
    expect(
        isinstance(got, WorkerFailedError)
        and str(got) == "; ".join(f"rank {rank}: RuntimeError: {WORD}" for rank in ranks),
        expected=f"WorkerFailedError that names ranks {ranks} and what they raised",
        got=_named(got),
        cause="the error of one rank hides those of the others"
        if isinstance(got, Exception)
        else "what a worker raised was swallowed: its reply looks like that of a call that did its work",
        advice="catch in the worker, and send what was raised as the reply",
    )
    after = _outcome(engine.capture, prompts[:1])
    expect(
        isinstance(after, list) and _equal(engine, before, after),
        expected="the next capture to give what it gave before",
        got=_named(after) if isinstance(after, Exception) else "other states",
        cause="replies of the call that failed were left behind, and answered this one",
        advice="number the calls, and have every rank reply with the number",
    )


@pytest.mark.ends_engine
def test_call_after_a_raise(
    engine: SharedEngine,
    workers: list[dict[str, Any]],
    prompts: list[list[int]],
    matches: Callable[..., None],
) -> None:
    """The first rank raises in a ``collective_rpc``: what the next one gives, and that no capture is misled."""
    engine.offer("ask")  # Who has it has our drills in the workers.
    engine.offer("rpc")
    before = engine.shared_capture(prompts)[0]
    raised = _outcome(engine.call, "rpc", "harness_raise", [0], "first call")
    replies = engine.call("rpc", "harness_raise", [], "second call")
    after = _outcome(engine.capture, prompts[:1])
    in_step = replies == ["second call"] * len(workers)
    right = isinstance(after, list) and _equal(engine, before, after)
    expect(
        right if in_step else isinstance(after, EngineOutOfStepError),
        expected="the right states" if in_step else f"EngineOutOfStepError, as the second call gave {replies}",
        got=_named(after) if isinstance(after, Exception) else f"{'the right' if right else 'other'} states",
        cause="a reply that was left behind is taken for that of a later call",
        advice="number the calls, and have every rank reply with the number",
    )
    matches(
        {"first call": _named(raised).partition("\\n")[0], "second call": replies},
        cause="how collective_rpc goes on after a rank has raised changed (v1/executor/multiproc_executor.py)",
        advice="never let a worker method raise with more than one rank; send the error as the reply",
    )


@pytest.mark.ends_engine
def test_hanging_worker_is_an_error(
    engine: SharedEngine, workers: list[dict[str, Any]], prompts: list[list[int]]
) -> None:
    """A call in which the last rank hangs: `ReplyTimeoutError` when its time is up, and no capture after it."""
    engine.offer("ask")
    engine.offer("rpc")
    start = time.monotonic()
    got = _outcome(engine.call, "rpc", "harness_hang", workers[-1]["rank"], FOR_GOOD, "hangs", limit=LIMIT)
    seconds = time.monotonic() - start
    expect(
        isinstance(got, ReplyTimeoutError) and LIMIT <= seconds < LIMIT + PATIENCE,
        expected=f"ReplyTimeoutError after {LIMIT:g} s",
        got=f"{_named(got)} after {seconds:.1f} s",
        cause="the wait for a reply does not end with the call's timeout",
        advice="give every collective_rpc a timeout; behind EngineCore, wait for it in a thread",
    )
    after = _outcome(engine.capture, prompts[:1])
    expect(
        isinstance(after, EngineOutOfStepError),
        expected="the next capture to be refused with EngineOutOfStepError",
        got=_named(after) if isinstance(after, Exception) else "samples",
        cause="the reply that was not waited for will answer a later call",
        advice="after a timeout, close the engine and open a new one",
    )
