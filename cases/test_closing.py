"""The end of an engine: a worker that dies, and closing."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from harness import processes
from harness.errors import CaptureError, WorkerDiedError
from harness.findings import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.shared_engine import SharedEngine

# vLLM's monitor thread sees a dead worker at once; ending the other ones takes it up to 8 s.
DEATH_SECONDS = 30.0
# A call has reached the workers by then; they hang for longer than anybody waits.
IN_THE_CALL_SECONDS = 0.5
HANG_SECONDS = 600.0


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    processes.wait_ended([pid], DEATH_SECONDS)


def _worker_of(engine: SharedEngine, workers: list[dict[str, Any]]) -> int:
    """The last worker's pid: a process of this engine's, or nothing is killed."""
    pid = workers[-1]["pid"]
    expect(
        engine.spec.executor_backend == "ray" or pid in set(processes.of_session(engine.pid)) - {engine.pid},
        expected="the last worker's pid, of a process that the engine has started",
        got=str(pid),
        cause="the worker does not say who it is, or the engine has died before",
        advice="answer with os.getpid() in the worker",
    )
    return int(pid)


def _expect_death(call: Callable[..., Any], *arguments: Any) -> None:
    """A call to an engine one of whose workers is dead, or dies."""
    start = time.monotonic()
    try:
        call(*arguments)
    except WorkerDiedError:
        got = ""
    except CaptureError as error:
        got = f"{type(error).__name__}: {error}"
    else:
        got = "a reply"
    seconds = time.monotonic() - start
    expect(
        not got and seconds < DEATH_SECONDS,
        expected=f"WorkerDiedError within {DEATH_SECONDS:g} s",
        got=f"{got or 'WorkerDiedError'} after {seconds:.1f} s",
        cause="the executor waits for a reply that never comes, or what it raises is not recognised",
        advice="give every collective_rpc a timeout, and look whether the workers are alive when it raises",
    )


@pytest.mark.ends_engine
def test_worker_killed_between_calls(
    engine: SharedEngine, workers: list[dict[str, Any]], prompts: list[list[int]]
) -> None:
    """A worker killed between calls: the next capture raises `WorkerDiedError`, soon, and gives no samples."""
    _kill(_worker_of(engine, workers))
    _expect_death(engine.capture, prompts[:1])


@pytest.mark.ends_engine
def test_worker_killed_in_a_call(
    engine: SharedEngine, workers: list[dict[str, Any]], prompts: list[list[int]]
) -> None:
    """A worker killed while its reply is waited for: that call and the next capture raise `WorkerDiedError`, soon."""
    engine.offer("ask")  # Who has it has our drills in the workers.
    engine.offer("rpc")
    last = workers[-1]
    killing = threading.Timer(IN_THE_CALL_SECONDS, _kill, [_worker_of(engine, workers)])
    killing.start()
    _expect_death(engine.call, "rpc", "harness_hang", last["rank"], HANG_SECONDS, "hangs until it is killed")
    killing.join()
    _expect_death(engine.capture, prompts[:1])


@pytest.mark.ends_engine
def test_closing_leaves_nothing(engine: SharedEngine) -> None:
    """After closing, every process of the engine has ended and its shared memory is gone."""
    left = engine.close()
    expect(
        not left,
        expected="every process to end by itself",
        got=f"{len(left)} had to be killed: {left}",
        cause="workers outlive the executor's shutdown: they hang in an exit handler or never got the message",
        advice="call the executor's shutdown, and end what is left of its processes",
    )
    expect(
        not engine.left_segments,
        expected="no shared-memory segment of the engine in /dev/shm",
        got=str(engine.left_segments),
        cause="nobody unlinked a segment that the engine had mapped: its maker forgot it, or ended too early",
        advice="unlink each segment where it was made, before the process ends",
    )
