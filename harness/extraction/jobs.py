"""What is to be extracted, how, and what has been: the words between the command, the driver and the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Job:
    """One prompt. ``index`` is its line in the prompt file, 0-based, and names its output file.

    Its ids and its mask are arrays of int64: as bytes they go between processes, and into the file.
    """

    index: int
    token_ids: array[int]
    loss_mask: array[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """A file that stands under its final name, whole and checked; ``file`` is its name in the folder."""

    index: int
    file: str
    tokens: int
    bytes: int
    rank: int


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What happened since the last call.

    ``waiting`` counts the jobs that are still to be delivered; ``stalled`` is how long the forward waited for room,
    in seconds, on the rank that waited longest.
    """

    delivered: tuple[Delivered, ...]
    waiting: int
    tokens: int
    bytes: int
    stalled: float


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the workers deliver. None leaves it to `extension`, which knows the device and the cores.

    ``ring_bytes``: memory between the device and the files, a rank. ``piece_bytes``: what one copy and one write
    move at most. ``writers``: threads a rank.
    """

    ring_bytes: int | None = None
    piece_bytes: int = 64 * MIB
    writers: int | None = None
