"""``samples.jsonl``: a line a delivered sample, appended as they come."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING

from harness.errors import UsageError
from harness.writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
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


def read(path: Path) -> list[Record]:
    """The samples that were delivered, of each the last line; a half line at the end is left out.

    Raises:
        UsageError: a whole line is no record.
    """
    records: dict[int, Record] = {}
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith(b"\n"):
                    break
                try:
                    record = Record(**json.loads(text))
                except (ValueError, TypeError) as error:
                    raise UsageError(
                        f"{path}:{number} is no record of a sample ({error}). Remove {path}: all of them are "
                        f"extracted again."
                    ) from error
                records[record.index] = record
    except FileNotFoundError:
        return []
    return list(records.values())


def rewrite(path: Path, records: Iterable[Record]) -> None:
    """Keep these only, whole lines all of them."""
    write_whole(path, "".join(map(_line, records)))


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
