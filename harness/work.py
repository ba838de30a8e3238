"""The folder that one run of the suite works in, and what it leaves beside its evidence."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from . import processes
from .errors import UsageError
from .writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# In a folder of logs: it is ours, and these of its files are, a name a line.
MARK = ".harness-logs"


def logs_of(results: Path) -> Path:
    """Where the engines' logs of a run go: ``logs`` beside ``evidence.json``, ``x-logs`` beside ``x.json``."""
    return _beside(results, "logs")


def junit_of(results: Path) -> Path:
    """Where a run's JUnit XML goes: ``junit.xml`` beside ``evidence.json``, ``x-junit.xml`` beside ``x.json``."""
    return _beside(results, "junit.xml")


def _beside(results: Path, name: str) -> Path:
    return results.with_name(name if results.stem == "evidence" else f"{results.stem}-{name}")


def claim(results: Path) -> None:
    """Make and mark the folder of the logs, so that a later run knows as ours what this one leaves.

    Raises:
        UsageError: something is there that no run of ours left.
    """
    logs, junit = logs_of(results), junit_of(results)
    if not (logs / MARK).is_file():
        held = any(logs.iterdir()) if logs.is_dir() else logs.exists() or logs.is_symlink()
        for place in (*([logs] if held else []), *([junit] if junit.exists() else [])):
            raise UsageError(
                f"{place} is there, and is of no run of the harness, which would put its own in its place: move it "
                "away, or give another place (--evidence; of `harness faults`, --results)"
            )
    with contextlib.suppress(OSError):  # Logs that cannot be kept do not stop a run.
        logs.mkdir(parents=True, exist_ok=True)
        (logs / MARK).touch()


@contextlib.contextmanager
def work_folder(logs: Path) -> Iterator[Path]:
    """A folder for this run; the engines' logs are kept in ``logs``, and no host survives it."""
    work = Path(tempfile.mkdtemp(prefix="harness-"))
    (work / "logs").mkdir()
    try:
        yield work
    finally:
        try:
            for mark in (work / "logs").glob("*.pid"):
                processes.end_session(int(mark.stem))
                mark.unlink()
        finally:
            with contextlib.suppress(OSError):
                _keep(work / "logs", logs)
            shutil.rmtree(work, ignore_errors=True)


def _keep(made: Path, logs: Path) -> None:
    """Put the logs of this run in the place of those of the one before; nothing else there is touched."""
    logs.mkdir(parents=True, exist_ok=True)
    mark = logs / MARK
    before = mark.read_text(encoding="utf-8").splitlines() if mark.exists() else []
    names = [path.name for path in made.iterdir()]
    write_whole(mark, _lines({*before, *names}))  # Whatever ends this early, none of them is taken for somebody's.
    for name in before:
        (logs / Path(name).name).unlink(missing_ok=True)
    for name in names:
        shutil.copy(made / name, logs / name)
    write_whole(mark, _lines(names))


def _lines(names: Iterable[str]) -> str:
    return "".join(f"{name}\n" for name in sorted(names))
