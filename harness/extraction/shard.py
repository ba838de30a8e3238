"""Which samples one machine extracts, of those that several share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Number ``number`` of ``count``, from 1, consecutive samples: every residue of an index is among them.

    The ranks of an engine share samples by it (`extension`); every ``count``-th sample would leave ranks idle.
    """

    number: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def suffix(self) -> str:
        """What its files are told apart by in a folder that shards share."""
        return "" if self.count == 1 else f"-{self.number}-of-{self.count}"

    def indices(self, samples: int) -> range:
        """Its samples of so many."""
        return range(samples * (self.number - 1) // self.count, samples * self.number // self.count)


def parse(text: str) -> Shard:
    """What ``--shard`` says.

    Raises:
        UsageError: it is not I/N with 1 <= I <= N.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    number, count = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f"--shard {text}: give I/N, the first of four as 1/4 and the last as 4/4")
    return Shard(number=number, count=count)
