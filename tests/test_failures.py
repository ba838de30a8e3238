from __future__ import annotations

import os
import threading
import time
from typing import NoReturn

import pytest

from harness.clients.failures import bounded, translated
from harness.errors import CaptureError, InvalidPromptError, ReplyTimeoutError, WorkerDiedError, WorkerFailedError


def test_nothing_raised_is_nothing_changed() -> None:
    with translated([os.getpid()]):
        pass


@pytest.mark.parametrize("raised", [RuntimeError("Executor failed."), TimeoutError("late"), OSError("cancelled")])
def test_any_error_means_a_death_if_a_worker_has_ended(dead: int, raised: Exception) -> None:
    with (
        pytest.raises(WorkerDiedError, match=f"worker process {dead} has ended") as caught,
        translated([os.getpid(), dead]),
    ):
        raise raised
    assert type(raised).__name__ in str(caught.value), caught.value
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (TimeoutError("RPC call to x timed out"), ReplyTimeoutError, "RPC call to x timed out"),
        (
            Exception("Call to collective_rpc method failed: RPC call to x timed out."),
            ReplyTimeoutError,
            "to x timed out",
        ),
        (RuntimeError("State error"), WorkerFailedError, "RuntimeError: State error"),
        (KeyError("layer"), WorkerFailedError, "KeyError: 'layer'"),
    ],
)
def test_error_of_living_workers(raised: Exception, kind: type[CaptureError], said: str) -> None:
    with pytest.raises(kind, match=said) as caught, translated([os.getpid()]):
        raise raised
    assert caught.value.__cause__ is raised


def test_our_own_errors_pass(dead: int) -> None:
    ours = InvalidPromptError("prompt 0 is empty")
    with pytest.raises(InvalidPromptError) as caught, translated([dead]):
        raise ours
    assert caught.value is ours


def test_interrupt_passes(dead: int) -> None:
    with pytest.raises(KeyboardInterrupt), translated([dead]):
        raise KeyboardInterrupt


def test_workers_that_become_known_later_count(dead: int) -> None:
    workers: list[int] = []

    def boot() -> None:
        with translated(workers):
            workers.append(dead)
            raise RuntimeError("cancelled")

    with pytest.raises(WorkerDiedError):
        boot()


def test_bounded_call_gives_what_it_gives() -> None:
    assert bounded(lambda: "a reply", 5.0, [os.getpid()]) == "a reply"


def test_bounded_call_raises_what_it_raises() -> None:
    def fail() -> NoReturn:
        raise KeyError("layer")

    with pytest.raises(KeyError, match="layer"):
        bounded(fail, 5.0, [os.getpid()])


@pytest.mark.parametrize(("alive", "raised"), [(True, TimeoutError), (False, ConnectionError)])
def test_bounded_call_ends_when_its_time_is_up_or_a_worker_has_ended(
    dead: int, alive: bool, raised: type[Exception]
) -> None:
    released = threading.Event()
    start = time.monotonic()
    try:
        with pytest.raises(raised):
            bounded(released.wait, 0.3 if alive else 30.0, [os.getpid() if alive else dead])
    finally:
        released.set()
    assert time.monotonic() - start < 5.0
