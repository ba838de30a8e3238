"""The end of an engine: a worker that dies, and closing."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from harness.errors import CaptureError, NotApplicableError, WorkerDiedError
from harness.findings import expect

if TYPE_CHECKING:
    from harness.plugin import SharedEngine

# vLLM's monitor thread sees a dead worker at once; ending the other ones takes it up to 8 s.
DEATH_SECONDS = 30.0


@pytest.mark.ends_engine
def test_killed_worker_is_an_error(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """A worker killed between calls: the next capture raises `WorkerDiedError`, soon, and gives no samples."""
    if engine.spec.tensor_parallel_size == 1:
        raise NotApplicableError("done where a rank can die and another live on")
    engine.offer("identities")
    os.kill(engine.call("identities")[-1]["pid"], signal.SIGKILL)
    start = time.monotonic()
    try:
        engine.capture(prompts[:1])
    except WorkerDiedError:
        got = ""
    except CaptureError as error:
        got = f"{type(error).__name__}: {error}"
    else:
        got = "samples"
    seconds = time.monotonic() - start
    expect(
        not got and seconds < DEATH_SECONDS,
        expected=f"WorkerDiedError within {DEATH_SECONDS:g} s",
        got=f"{got or 'WorkerDiedError'} after {seconds:.1f} s",
        cause="the executor waits for a reply that never comes, or what it raises is not recognised",
        advice="give every collective_rpc a timeout, and look whether the workers are alive when it raises",
    )


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
