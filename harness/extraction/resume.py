"""What a folder holds already, and what of it counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UsageError

from . import journal, manifest, stored
from .layouts import LAYOUTS

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path

    from .journal import Record
    from .manifest import Manifest
    from .prompt_file import PromptFile
    from .shard import Shard

# A sample's file in any layout, and what stands beside it while it is made or read.
_FILE = re.compile(r"(?:data_)?(?P<index>\d+)\.(?:safetensors|pt)(?:\.\w+)*")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The samples of earlier runs that are whole; ``dropped`` says of the others what is wrong."""

    records: tuple[Record, ...]
    dropped: tuple[str, ...]


def take_up(folder: Path, shard: Shard, ours: Manifest, prompts: PromptFile) -> Kept:
    """Keep what is whole, and remove the rest: half written files, and whole ones that no journal speaks for.

    ``ours`` takes over what the manifest of earlier runs knows.

    Raises:
        UsageError: the folder is of another extraction, or somebody else's.
    """
    own = manifest.path(folder, shard)
    others = sorted(path for path in folder.glob("manifest*.json") if path != own)
    for path in others:
        if other := manifest.read(path):
            manifest.require_same(path, other.settings, ours.settings)
    noted = journal.path(folder, shard)
    records = journal.read(noted)
    earlier = manifest.read(own)
    if earlier is None:
        _require_ours(folder, noted, records, others)
    elif records:
        manifest.require_same(own, earlier.settings, ours.settings)
        ours.dtype = earlier.dtype
        ours.evidence = list(dict.fromkeys((*earlier.evidence, *ours.evidence)))
    faults = {record.index: _fault(folder, shard, record, ours, prompts) for record in records}
    kept = tuple(record for record in records if faults[record.index] is None)
    sweep(folder, shard.indices(len(prompts)), {record.file for record in kept})
    # Also for half a line at its end.
    if noted.exists():
        journal.rewrite(noted, kept)
    dropped = (f"{record.file} {faults[record.index]}" for record in records if faults[record.index] is not None)
    return Kept(records=kept, dropped=tuple(dropped))


def _require_ours(folder: Path, noted: Path, records: Sequence[Record], others: Sequence[Path]) -> None:
    """Without a manifest of its own, nothing here is this shard's."""
    if records:
        raise UsageError(f"{noted} is there and its manifest is not. Give another --output, or remove the samples.")
    if not others and (found := next((path.name for path in folder.iterdir() if _FILE.fullmatch(path.name)), None)):
        raise UsageError(f"{folder} holds {found} and no manifest that says of what. Give another --output.")


def _fault(folder: Path, shard: Shard, record: Record, ours: Manifest, prompts: PromptFile) -> str | None:
    """Why a sample does not count."""
    layout = ours.settings["layout"]
    if record.index not in shard.indices(len(prompts)) or record.file != LAYOUTS[layout].file(record.index):
        return "is not one of this shard's"
    expected = stored.Stored(
        dtype=ours.dtype or "",
        shape=(prompts.tokens[record.index], len(ours.settings["layers"]), ours.hidden_size),
        ids=prompts.digest(record.index),
    )
    return stored.fault(folder / record.file, record.bytes, layout, expected)


def sweep(folder: Path, own: range, kept: Container[str]) -> None:
    """Remove the files of these samples that do not count; those of other shards may be in the making.

    Args:
        folder: where.
        own: the shard's samples.
        kept: the names of the files that count.
    """
    for path in folder.iterdir():
        match = _FILE.fullmatch(path.name)
        if match and int(match["index"]) in own and path.name.removesuffix(".lock") not in kept:
            path.unlink()
