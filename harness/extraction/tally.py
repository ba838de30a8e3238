"""Which samples of a shard are there, a byte each, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .journal import Record


class Tally:
    """``counts`` are samples, tokens and bytes, as the manifest has them."""

    def __init__(self, own: range) -> None:
        """Start with none of these samples."""
        self.own = own
        self.counts = {"samples": 0, "tokens": 0, "bytes": 0}
        self._there = bytearray(len(own))

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and index in self.own and bool(self._there[index - self.own.start])

    def add(self, record: Record) -> None:
        """One more is there."""
        self._there[record.index - self.own.start] = 1
        for name, count in (("samples", 1), ("tokens", record.tokens), ("bytes", record.bytes)):
            self.counts[name] += count

    def missing(self) -> Iterator[int]:
        """Those that are not there by the time they are come to, in order."""
        return (index for index, there in zip(self.own, self._there, strict=True) if not there)
