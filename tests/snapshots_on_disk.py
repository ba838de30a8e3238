"""What was recorded of the pinned releases."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from packaging.version import Version

from harness.capabilities import Capabilities
from harness.entries import Entry, Shape

if TYPE_CHECKING:
    from harness.surface import Surface

SNAPSHOTS = Path(__file__).parent.parent / "snapshots"


def _of_releases(name: str) -> list[Path]:
    """A file of every release, without those of other devices and dtypes, whose folders have a dash."""
    return [path for path in sorted(SNAPSHOTS.glob(f"*/{name}")) if "-" not in path.parent.name]


def recorded() -> dict[str, dict[str, Any]]:
    """What ``cases/test_capabilities.py`` recorded, by release."""
    return {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))["test_capabilities"]
        for path in _of_releases("test_capabilities.json")
    }


def capabilities_of(row: dict[str, Any]) -> Capabilities:
    return Capabilities(**{name: value for name, value in row.items() if name != "generation"})


@functools.cache
def surfaces() -> dict[str, Surface]:
    """The surfaces that ``cases/test_signatures.py`` recorded, by release, oldest first; without source text."""
    files = {path.parent.name: path for path in _of_releases("test_signatures.json")}
    found: dict[str, Surface] = {}
    for release in sorted(files, key=Version):
        areas = json.loads(files[release].read_text(encoding="utf-8"))
        found[release] = {name: _entry(name, row) for area in areas.values() for name, row in area.items()}
    return found


def _entry(name: str, row: dict[str, Any]) -> Entry:
    shapes: tuple[Shape, ...] = get_args(Shape)
    (shape,) = (each for each in shapes if each in row)
    return Entry(
        name=name,
        place=f"{row['in'].removeprefix('vllm').lstrip('.')}:{name.partition('.')[0]}",
        parameters=tuple(row[shape]),
        shape=shape,
        returns=row.get("returns"),
        also=tuple(row.get("also in", ())),
    )
