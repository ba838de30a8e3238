"""Ending a session of processes for good: no process left, no shared-memory segment left.

A host is the leader of its own session (setsid), so everything that vLLM starts below it can be found,
also after the host itself is gone. Segments are found in the memory maps of those processes: a process
that is killed cannot unlink its own, and Python's resource tracker dies with the session.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEGMENT = re.compile(r"\s(/dev/shm/\S+)")


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


def segments(pids: list[int]) -> set[str]:
    """The files in /dev/shm that these processes have mapped."""
    found: set[str] = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        found.update(_SEGMENT.findall(maps))
    return found


def end_session(session: int, *, spare: int | None = None, patience: float = 5.0) -> list[int]:
    """Kill what is left of a session and unlink its segments.

    Args:
        session: the session id.
        spare: a process not to kill, the caller if it belongs to the session.
        patience: seconds to wait for the killed to be gone.

    Returns:
        The processes that had to be killed, empty if the session had ended by itself.
    """
    left = [pid for pid in of_session(session) if pid != spare]
    mapped = segments(left if spare is None else [*left, spare])
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_ended(left, patience)
    for path in mapped:
        Path(path).unlink(missing_ok=True)
    return left
