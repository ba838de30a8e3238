"""What a folder holds already, and what of it counts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.errors import UsageError

from . import journal, manifest, stored
from .layouts import LAYOUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .journal import Record
    from .manifest import Manifest
    from .prompt_file import PromptFile
    from .shard import Shard
    from .tally import Tally

# A sample's file in any layout, and what stands beside it while it is made or read.
_FILE = re.compile(r"(?:data_)?(?P<index>\d+)\.(?:safetensors|pt)(?:\.\w+)*")
# What a worker tries a folder with, and is gone at once unless it is killed right then.
_TRIAL = re.compile(r"\.harness-\d+-\d+")


def take_up(
    folder: Path, shard: Shard, ours: Manifest, prompts: PromptFile, tally: Tally, tell: Callable[[str], None]
) -> bytes:
    """Count what is whole. Nothing is removed: `clear` does that, once the run may start.

    Args:
        folder: the output folder, which nobody else writes this shard of.
        shard: which.
        ours: the manifest of this run; it takes over what that of earlier ones knows.
        prompts: what the samples are of.
        tally: gets what counts.
        tell: told of what was delivered and does not count, and why.

    Returns:
        A byte a line of the journal: 1 if it counts, else 0.

    Raises:
        UsageError: the folder is of another extraction, or somebody else's.
        DeliveryError: a file cannot be read now.
        OSError: the manifest cannot be written.
    """
    own, noted = manifest.path(folder, shard), journal.path(folder, shard)
    others = sorted(path for path in folder.glob("manifest*.json") if path != own)
    for path in others:
        if other := manifest.read(path):
            manifest.require_same(path, other.settings, ours.settings)
    earlier = manifest.read(own)
    there = noted.exists() and noted.stat().st_size > 0
    if earlier is None:
        _require_ours(folder, noted if there else None, others)
    elif there or earlier.delivered["samples"]:
        manifest.require_same(own, earlier.settings, ours.settings)
        ours.dtype = earlier.dtype
        ours.evidence = list(dict.fromkeys((*earlier.evidence, *ours.evidence)))

    lines = bytearray()
    for record in journal.read(noted):
        if fault := _fault(folder, record, ours, prompts, tally):
            tell(f"{record.file} {fault}")
        else:
            tally.add(record)
        lines.append(fault is None)
    if earlier is not None and earlier.complete and any(True for _index in tally.missing()):
        # Now, as this run may be refused, or killed while it boots. What was delivered still binds to the settings.
        replace(earlier, complete=False).write(own)
    return bytes(lines)


def clear(folder: Path, shard: Shard, layout: str, tally: Tally, lines: bytes) -> None:
    """Remove what does not count: half written files, whole ones that no journal speaks for, and lines of a journal.

    Args:
        folder: the output folder.
        shard: which.
        layout: of the files.
        tally: what counts.
        lines: which of the journal's do, as `take_up` gives it.
    """
    noted = journal.path(folder, shard)
    if noted.exists():
        journal.prune(noted, lines)
    sweep(folder, shard, layout, tally)


def _require_ours(folder: Path, noted: Path | None, others: Sequence[Path]) -> None:
    """Without a manifest of its own, nothing here is this shard's."""
    if noted is not None:
        raise UsageError(f"{noted} is there and its manifest is not. Give another --output, or remove the samples.")
    if not others and (found := next((path.name for path in folder.iterdir() if _FILE.fullmatch(path.name)), None)):
        raise UsageError(f"{folder} holds {found} and no manifest that says of what. Give another --output.")


def _fault(folder: Path, record: Record, ours: Manifest, prompts: PromptFile, tally: Tally) -> str | None:
    """Why a sample does not count."""
    layout = ours.settings["layout"]
    if record.index not in tally.own or record.file != LAYOUTS[layout].file(record.index):
        return "is not one of this shard's"
    if record.index in tally:
        return "was noted twice"
    expected = stored.Stored(
        dtype=ours.dtype or "",
        shape=(prompts.tokens[record.index], len(ours.settings["layers"]), ours.hidden_size),
        ids=prompts.digest(record.index),
    )
    return stored.fault(folder / record.file, record.bytes, layout, expected)


def sweep(folder: Path, shard: Shard, layout: str, tally: Tally) -> None:
    """Remove what does not count of a shard; files of others may be in the making."""
    halves = tuple(f".{path.name}." for path in (manifest.path(folder, shard), journal.path(folder, shard)))
    for path in folder.iterdir():
        match = _FILE.fullmatch(path.name)
        if match is None:
            stale = path.name.startswith(halves) or _TRIAL.fullmatch(path.name) is not None
        else:
            index = int(match["index"])
            counts = index in tally and path.name.removesuffix(".lock") == LAYOUTS[layout].file(index)
            stale = index in tally.own and not counts
        if stale:
            path.unlink(missing_ok=True)
