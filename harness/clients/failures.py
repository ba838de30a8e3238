"""What vLLM raises, as our own errors: the same class for the same trouble in every release."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from harness import processes
from harness.errors import CaptureError, ReplyTimeoutError, WorkerDiedError, WorkerFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")

# How often it is looked whether workers live, while one is waited for.
POLL_SECONDS = 0.1
# vLLM ends workers with SIGTERM, and after 4 s with SIGKILL (v1/executor/multiproc_executor.py).
ENDING_SECONDS = 10.0


def end(shutdown: Callable[[], None], workers: Iterable[int]) -> None:
    """Shut an engine down, and wait for its workers, for `ENDING_SECONDS` at most.

    In a thread, because vLLM's shutdown may never return: after a worker has died, 0.28.0 hangs in the garbage
    collection of `cleanup_dist_env_and_memory` (distributed/parallel_state.py), where a zmq context waits for a
    socket that is still open. What is left then ends with the process.
    """
    thread = threading.Thread(target=shutdown, daemon=True)
    thread.start()
    thread.join(ENDING_SECONDS)
    processes.wait_ended(set(workers) - {os.getpid()}, ENDING_SECONDS)


def bounded(call: Callable[[], T], seconds: float, workers: Iterable[int]) -> T:
    """What a call gives, for calls that would wait for good.

    ``LLM.collective_rpc`` does behind an EngineCore process: its timeout is not that of the wait (`call_utility`,
    v1/engine/core_client.py, 0.11.0 to 0.32.0), and the process may end in the meantime. The call is made in a
    thread, which is left to wait then.

    Raises:
        TimeoutError: it took longer.
        ConnectionError: a worker has ended.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for.
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    deadline = time.monotonic() + seconds
    while not concurrent.futures.wait([future], POLL_SECONDS).done:
        if processes.ended(workers):
            raise ConnectionError("a worker ended while its reply was waited for")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no reply within {seconds:g} s")
    return future.result()


@contextlib.contextmanager
def translated(workers: Sequence[int] = ()) -> Iterator[None]:
    """Raise our own error in place of what vLLM raised.

    That a worker has died cannot be told from the words: the executor says "Executor failed" or "cancelled",
    and another rank may answer first, that its peer closed the connection. So we look whether they all live.

    Args:
        workers: the pids of the workers.

    Raises:
        WorkerDiedError: one of them has ended.
        ReplyTimeoutError: none has, and a reply is late.
        WorkerFailedError: none has, and one raised.
    """
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if dead := processes.ended(workers):
            raise WorkerDiedError(
                f"worker process {', '.join(map(str, dead))} has ended ({text}). Its last words are in the log."
            ) from error
        # EngineCore sends what its executor raised as text (`failure_message`, v1/engine/core.py, 0.11.0 to 0.32.0).
        if isinstance(error, TimeoutError) or text.endswith(" timed out."):
            raise ReplyTimeoutError(f"no reply from the workers: {error}") from error
        raise WorkerFailedError(text) from error
