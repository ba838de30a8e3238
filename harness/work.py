"""The folder that one run of the suite works in."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from . import processes

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def work_folder(logs: Path) -> Iterator[Path]:
    """A folder for this run; the engines' logs are kept, and no host survives it."""
    work = Path(tempfile.mkdtemp(prefix="harness-"))
    (work / "logs").mkdir()
    try:
        yield work
    finally:
        for mark in (work / "logs").glob("*.pid"):
            processes.end_session(int(mark.stem))
            mark.unlink()
        with contextlib.suppress(OSError):
            shutil.rmtree(logs, ignore_errors=True)
            shutil.copytree(work / "logs", logs)
        shutil.rmtree(work, ignore_errors=True)
