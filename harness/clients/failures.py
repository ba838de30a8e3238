"""What vLLM raises, as our own errors: the same class for the same trouble in every release."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from harness import processes
from harness.errors import CaptureError, ReplyTimeoutError, WorkerDiedError, WorkerFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
        if isinstance(error, TimeoutError):
            raise ReplyTimeoutError(f"no reply from the workers: {error}") from error
        raise WorkerFailedError(text) from error
