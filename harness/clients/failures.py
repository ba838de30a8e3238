"""What vLLM raises, as our own errors: the same class for the same trouble in every release."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from harness.errors import CaptureError, ReplyTimeoutError, WorkerDiedError, WorkerFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

# "Executor failed." after the monitor thread saw a worker end, "cancelled" in a call that was waiting
# then (v1/executor/multiproc_executor.py and shm_broadcast.py, 0.11.0 to 0.32.0).
_DEAD = ("Executor failed", "cancelled", "EngineCore encountered", "EngineDeadError", "died unexpectedly")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise `WorkerDiedError`, `WorkerFailedError` or `ReplyTimeoutError` in place of what vLLM raised."""
    try:
        yield
    except CaptureError:
        raise
    except TimeoutError as error:
        raise ReplyTimeoutError(f"no reply from the workers: {error}") from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if any(sign in text for sign in _DEAD):
            raise WorkerDiedError(f"a worker process ended ({text}). Its last words are in the log.") from error
        raise WorkerFailedError(text) from error
