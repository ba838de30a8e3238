"""What a process inherits, and ending a session of them for good: no process, no shared-memory segment left.

A host is the leader of its own session (setsid), so everything that vLLM starts below it can be found,
also after the host itself is gone. Segments are found in the memory maps of those processes: a process
that is killed cannot unlink its own, and Python's resource tracker dies with the session.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# address, permissions, offset, device, inode, path
_SEGMENT = re.compile(r"^\S+ \S+ \S+ \S+ (\d+) +/dev/shm/", re.MULTILINE)


def child_variables() -> dict[str, str]:
    """The variables for a process of another environment: nothing that ties it to this one."""
    dropped = {"VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    return {key: value for key, value in os.environ.items() if key not in dropped}


def own_variables() -> dict[str, str]:
    """The variables for a process of this environment.

    Not the one that keeps Python from keeping bytecode: every engine would compile vLLM and torch anew, twice where
    its workers are processes (an import took 13 s instead of 7).
    """
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def _session_of(pid: int) -> int | None:
    """The session of a process that runs; None if it has ended, zombies included."""
    try:
        # "pid (name) state ppid pgrp session ...": the name may hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[3])


def of_session(session: int) -> list[int]:
    """The processes of a session that still run."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _session_of(pid) == session]


def ended(pids: Iterable[int]) -> list[int]:
    """Those that no longer run."""
    return [pid for pid in pids if _session_of(pid) is None]


def wait_ended(pids: Iterable[int], patience: float) -> None:
    """Wait until all have ended, or for ``patience`` seconds."""
    waiting = set(pids)
    deadline = time.monotonic() + patience
    while waiting and time.monotonic() < deadline:
        waiting -= set(ended(waiting))
        if waiting:
            time.sleep(0.02)


def wait(process: subprocess.Popen[bytes], closing: float) -> int:
    """Wait for a process that has a session of its own, so that ^C reaches this one alone.

    Returns:
        Its exit status.

    Raises:
        KeyboardInterrupt: after ^C, which is passed on once: it has ended, or ``closing`` seconds are over.
    """
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(closing)
        raise


def segments(pids: Iterable[int]) -> set[str]:
    """The files in /dev/shm that these processes have mapped.

    By inode: a semaphore is mapped under a temporary name and linked to its own afterwards.
    """
    mapped: set[int] = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        mapped.update(map(int, _SEGMENT.findall(maps)))
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir("/dev/shm"):  # noqa: S108 - where shared memory lives, not a temporary file.
            if entry.inode() in mapped:
                found.add(entry.path)
    return found


def end_session(session: int, *, spare: int | None = None, patience: float = 5.0) -> list[int]:
    """Kill what is left of a session and unlink its segments.

    Args:
        session: the session id.
        spare: a process not to kill, the caller if it belongs to the session.
        patience: seconds to wait for the killed to be gone.

    Returns:
        The processes that had to be killed, empty if the session had ended by itself.

    Raises:
        KeyboardInterrupt: ^C came meanwhile; the session has ended all the same.
    """
    killed: list[int] = []
    mapped: set[str] = set()
    with _deferred_interrupts():
        try:
            for _round in range(5):  # Again, for what was started while we looked.
                left = [pid for pid in of_session(session) if pid != spare]
                if not left:
                    break
                try:
                    # Stopped first, so that none makes a segment after its maps were read.
                    _signal(left, signal.SIGSTOP)
                    mapped |= segments(left)
                finally:  # Who is stopped cannot end by itself, nor see that we have.
                    _signal(left, signal.SIGKILL)
                wait_ended(left, patience)
                killed += [pid for pid in left if pid not in killed]
            if spare is not None:
                mapped |= segments([spare])
        finally:
            for path in mapped:
                Path(path).unlink(missing_ok=True)
    return killed


@contextlib.contextmanager
def _deferred_interrupts() -> Iterator[None]:
    """What SIGINT and SIGTERM do here, they do afterwards; only the main thread is ever interrupted by them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[number] = signal.signal(number, lambda number, _frame: came.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrived in came[:1]:
            signal.raise_signal(arrived)


def follow(lifeline: int) -> threading.Thread:
    """Take this session down as soon as the other end of a pipe, to which nothing is written, closes."""

    def wait() -> None:
        os.read(lifeline, 1)
        end_session(os.getsid(0), spare=os.getpid(), patience=1.0)
        os.kill(os.getpid(), signal.SIGKILL)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
