"""``samples.jsonl``: a line a delivered sample, appended as they come."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .shard import Shard


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One sample: its line in the prompt file, its file's name, and what its ids hash to; ``rank`` wrote it."""

    index: int
    file: str
    tokens: int
    bytes: int
    ids: str
    rank: int


def path(folder: Path, shard: Shard) -> Path:
    """Where a shard's is."""
    return folder / f"samples{shard.suffix}.jsonl"


def _line(record: Record) -> str:
    return json.dumps(asdict(record)) + "\n"


def read(path: Path) -> Iterator[Record]:
    """What its whole lines hold, in turn: half a line at the end is of a process that was killed.

    Raises:
        UsageError: a whole line is no record.
    """
    if path.exists():
        with path.open("rb") as file:
            for number, text in enumerate(_whole(file), 1):
                yield _record(path, number, text)


def prune(path: Path, lines: Iterable[int]) -> None:
    """Keep those of its whole lines that count: ``lines`` has a number each, 0 for one that does not."""
    kept = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with path.open("rb") as file, kept.open("wb") as rest:
            rest.writelines(itertools.compress(_whole(file), lines))
        kept.replace(path)
    finally:
        kept.unlink(missing_ok=True)


def _whole(file: Iterable[bytes]) -> Iterator[bytes]:
    return (text for text in file if text.endswith(b"\n"))


def _record(path: Path, number: int, text: bytes) -> Record:
    try:
        return Record(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{path}:{number} is no record of a sample ({error}). Remove {path}: all of them are extracted again."
        ) from error


class Appender:
    """Appends to a journal that ends with a whole line."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def add(self, records: Iterable[Record]) -> None:
        """Add these; they are the kernel's when this returns, whatever becomes of this process."""
        self._file.write("".join(map(_line, records)))
        self._file.flush()

    def close(self) -> None:
        self._file.close()
