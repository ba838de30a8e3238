"""The output folder, and the lock on a shard of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import processes
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .shard import Shard

# A killed run's host ends its workers first; those of eight GPUs take a while to let go of their memory.
ENDING_SECONDS = 60.0
PREFIX = "harness-"


@contextlib.contextmanager
def opened(folder: Path, shard: Shard) -> Iterator[tuple[int, Path]]:
    """Have a shard of a folder to oneself. The folder is made, and removed again if nothing is in it at the end.

    Yields:
        The descriptor that the lock is on, which is held until the last process that inherits it has ended. And a
        temporary folder of this run's own, which the next run removes if this one is killed.

    Raises:
        UsageError: another run has it, or the folder cannot be written.
    """
    path = folder / f".lock{shard.suffix}"
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _taken(path, shard)
    except OSError as error:
        _remove(made)
        raise UsageError(
            f"samples cannot be written to {folder}: {error.strerror}. Give another place with --output."
        ) from error
    work = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        held = {"pid": os.getpid(), "machine": platform.node(), "work": str(work)}
        os.pwrite(lock, json.dumps(held).encode(), 0)
        yield lock, work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        path.unlink(missing_ok=True)
        os.close(lock)
        _remove(made)


def _taken(path: Path, shard: Shard) -> int:
    """The descriptor of the lock file, locked; what the run before left in the temporary folder is removed."""
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(lock)
            os.close(lock)
            if not _ending(holder) or time.monotonic() > deadline:
                raise UsageError(
                    f"process {holder.get('pid')} on {holder.get('machine')} is extracting shard {shard} into "
                    f"{path.parent}. Wait for it or end it, or give another --output."
                ) from None
            time.sleep(0.1)
            continue
        holder = _holder(lock)
        # Whoever had it before removes the file while it is locked: then this is a lock on nothing.
        if path.exists() and path.stat().st_ino == os.fstat(lock).st_ino:
            _sweep(holder)
            os.ftruncate(lock, 0)
            return lock
        os.close(lock)


def _holder(lock: int) -> dict[str, Any]:
    """What the last one who had the lock says of itself; nothing if it has not come to it."""
    try:
        return dict(json.loads(os.pread(lock, 4096, 0)))
    except ValueError:
        return {}


def _ending(holder: dict[str, Any]) -> bool:
    """Whether the command is gone, so that what still holds the lock is about to end; or it has only just begun."""
    return not holder or (holder["machine"] == platform.node() and bool(processes.ended([holder["pid"]])))


def _sweep(holder: dict[str, Any]) -> None:
    """Remove the temporary folder of a run that was killed on this machine."""
    if holder.get("machine") == platform.node():
        work = Path(holder["work"])
        # A file says so that anybody may have written: nothing but what `opened` makes is removed.
        if work.name.startswith(PREFIX) and work.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(work, ignore_errors=True)


def _remove(made: list[Path]) -> None:
    """Remove the folders that were made, as far as nothing is in them."""
    for each in made:
        with contextlib.suppress(OSError):
            each.rmdir()
