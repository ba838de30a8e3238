"""``manifest.json``: what a folder's samples are of, and whether all of them are there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from harness import __version__
from harness.errors import UsageError
from harness.writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .shard import Shard

SCHEMA = 1
UNGATED = "not gated"
LAYERS = (
    "states of layer i are the output of decoder layer i, 0-based: the residual stream after it, before the final "
    "norm"
)
SAMPLES = (
    "a file is named by its sample's 0-based line in the prompt file; shard I of N has lines "
    "samples * (I - 1) // N to samples * I // N, that one excluded"
)


@dataclass(kw_only=True)
class Manifest:
    """One shard's, which ``shard`` names.

    ``settings`` are what the samples depend on: a run that goes on has the same, and so have the other shards.
    ``engine`` is what it depends on how fast they come. ``dtype`` is that of the files, known with the first.
    ``evidence`` are the digests of what let the runs start, or `UNGATED`. ``delivered`` counts samples, tokens and
    bytes.
    """

    shard: str
    settings: dict[str, Any]
    engine: dict[str, Any]
    model: str
    prompts: dict[str, Any]
    hidden_size: int
    axes: Mapping[str, str]
    dtype: str | None = None
    evidence: list[str] = field(default_factory=list)
    delivered: dict[str, int] = field(default_factory=lambda: {"samples": 0, "tokens": 0, "bytes": 0})
    complete: bool = False
    schema: int = SCHEMA
    harness: str = __version__
    meaning: dict[str, str] = field(default_factory=lambda: {"layers": LAYERS, "samples": SAMPLES})

    def write(self, path: Path) -> None:
        """Write it whole.

        Raises:
            OSError: it cannot be written; what was there before still is.
        """
        write_whole(path, json.dumps(asdict(self), indent=1) + "\n")


def path(folder: Path, shard: Shard) -> Path:
    """Where a shard's is."""
    return folder / f"manifest{shard.suffix}.json"


def read(path: Path) -> Manifest | None:
    """What a file holds; None if it is not there.

    Raises:
        UsageError: it is none that this harness can go on with.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}). Give another --output.") from error
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} is of schema {body.get('schema') if isinstance(body, dict) else None}, and this harness goes on "
            f"with {SCHEMA} only. Use the harness that wrote it, or give another --output."
        )
    try:
        return Manifest(**body)
    except TypeError as error:
        raise UsageError(f"{path} lacks a part or has one too many ({error}). Give another --output.") from error


def require_same(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """The settings of the samples that are there are those of this run.

    Args:
        path: the manifest that theirs are of.
        theirs: its settings.
        ours: this run's.

    Raises:
        UsageError: they are not; each that differs is named.
    """
    differing = [
        f"{name} was {json.dumps(theirs.get(name))} and is {json.dumps(ours.get(name))}"
        for name in dict.fromkeys((*theirs, *ours))
        if theirs.get(name) != ours.get(name)
    ]
    if differing:
        raise UsageError(
            f"{path} is of another extraction: {'; '.join(differing)}. Go on with the same settings, or give another "
            f"--output."
        )
