"""What a search has seen so far, in a file that is whole at any moment, so that no finished step is done again."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import filelock

from .errors import UsageError
from .findings import Finding
from .writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What one build did when it was asked.

    ``finding`` is what failed, ``reason`` why it could not be told, ``log`` the file with what was said. It is
    ``lasting`` if it would be the same another time: a full disk or a network that is down is not.
    """

    outcome: Literal["passed", "failed", "untestable"]
    finding: Finding | None = None
    reason: str = ""
    seconds: float = 0.0
    log: str = ""
    lasting: bool = True


def key(question: Mapping[str, Any]) -> str:
    """A short name for a question: the same words give the same name."""
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:8]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder of a question: two that ask the same at once would overwrite what the other leaves there.

    Raises:
        UsageError: another process holds it.
    """
    lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise UsageError(
            f"{folder} is of the same search, which another process has under way: wait for it, or end it and go on"
        ) from error
    try:
        yield
    finally:
        lock.release()


class Journal:
    """The observations of one question, by build."""

    def __init__(self, path: Path, question: Mapping[str, Any]) -> None:
        """Take up what was kept.

        Raises:
            UsageError: the file cannot be read, or is of another question.
        """
        self._path = path
        self._question = dict(question)
        self.seen: dict[str, Observation] = {}
        if not path.exists():
            return
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            self.seen = {name: _observation(row) for name, row in kept["seen"].items()}
            same = kept["question"] == json.loads(json.dumps(self._question))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path} cannot be read ({error}): remove it, or start anew with --fresh") from error
        if not same:
            raise UsageError(f"{path} is of another question: remove it, or start anew with --fresh")

    def note(self, name: str, observation: Observation) -> None:
        """Keep one more; for a later process only if it is lasting."""
        self.seen[name] = observation
        rows = {name: asdict(seen) for name, seen in self.seen.items() if seen.lasting}
        write_whole(self._path, json.dumps({"question": self._question, "seen": rows}, indent=1))

    def forget(self) -> None:
        """The question is answered, or is to be asked anew."""
        self.seen = {}
        self._path.unlink(missing_ok=True)


def _observation(row: dict[str, Any]) -> Observation:
    finding = row.pop("finding")
    return Observation(**row, finding=None if finding is None else Finding(**finding))
