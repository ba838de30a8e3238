"""What changed from one release of a report to the next: in its results, its capabilities, and in vLLM itself."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import diff, releases, wheels
from harness.errors import UsageError

from .gather import OUTCOMES, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.diff import Change
    from harness.surface import Surface

    from .gather import Row, Table

_BREAKING = diff.KINDS[: diff.KINDS.index("recorded live") + 1]
_WORSE_FIRST = ("broken", "known-fault", "not-applicable", "passed")


@dataclass(frozen=True, kw_only=True)
class Result:
    """A cell whose state is another one after the step."""

    group: str
    client: str
    before: str
    after: str
    better: bool


@dataclass(frozen=True, kw_only=True)
class Step:
    """From one release to its neighbour in the report, on one device.

    ``facts`` are capabilities and the generation, from the evidence; ``changes`` are those of the surface and of
    what was recorded live, with how often each shows; ``unknown`` says what could not be compared, and why.
    """

    before: str
    after: str
    device: str
    results: tuple[Result, ...]
    facts: tuple[str, ...]
    changes: tuple[tuple[Change, int], ...]
    unknown: tuple[str, ...]

    @property
    def breaking(self) -> int:
        """How many changes break a caller at once, or change what a running engine replies."""
        return sum(change.kind in _BREAKING for change, _times in self.changes)

    @property
    def kinds(self) -> dict[str, int]:
        """How many changes there are of each kind, worst first."""
        counted = {kind: sum(change.kind == kind for change, _times in self.changes) for kind in diff.KINDS}
        return {kind: count for kind, count in counted.items() if count}


def steps(table: Table, snapshots: Path) -> list[Step]:
    """Every step between neighbouring releases that a table has comparable evidence of, device by device."""
    found = []
    runs_of_all = [row for row in table.rows if row.record and row.comparable]
    for device in sorted({row.device for row in runs_of_all}):
        rows = [row for row in runs_of_all if row.device == device]
        runs = [list(members) for _release, members in itertools.groupby(rows, key=lambda row: row.release)]
        found += [_step(before, after, snapshots) for before, after in itertools.pairwise(runs)]
    return found


def _step(before: Sequence[Row], after: Sequence[Row], snapshots: Path) -> Step:
    one, other = before[0].release, after[0].release
    changes, unknown = _changes(one, other, snapshots)
    return Step(
        before=one,
        after=other,
        device=before[0].device,
        results=tuple(_results(before, after)),
        facts=tuple(_facts(before[0], after[0])),
        changes=tuple(diff.merged(changes)),
        unknown=tuple(unknown),
    )


def _results(before: Sequence[Row], after: Sequence[Row]) -> list[Result]:
    """Cells that both sides have, where the state or the number of what did not pass differs."""
    found = []
    sides = [{(cell.group, cell.client): cell for row in rows for cell in row.cells} for rows in (before, after)]
    for key in sorted(sides[0].keys() & sides[1].keys()):
        one, other = (side[key] for side in sides)
        faults = [{name: cell.counts.get(name, 0) for name in OUTCOMES[1:-1]} for cell in (one, other)]
        if one.state != other.state or faults[0] != faults[1]:
            worse = _WORSE_FIRST.index(other.state), -sum(faults[1].values())
            better = worse > (_WORSE_FIRST.index(one.state), -sum(faults[0].values()))
            found.append(
                Result(
                    group=key[0],
                    client=key[1],
                    before=sentence(one.counts),
                    after=sentence(other.counts),
                    better=better,
                )
            )
    return found


def _facts(before: Row, after: Row) -> list[str]:
    assert before.record is not None
    assert after.record is not None
    one, other = before.record.environment, after.record.environment
    found = []
    if one.get("generation") != other.get("generation"):
        found.append(f"generation: {one.get('generation')} -> {other.get('generation')}")
    has, will = one.get("capabilities", {}), other.get("capabilities", {})
    found += [f"{name}: {has[name]} -> {will[name]}" for name in has if name in will and has[name] != will[name]]
    return found


def _changes(before: str, after: str, snapshots: Path) -> tuple[list[Change], list[str]]:
    changes = diff.recorded(diff.snapshots(snapshots / before), diff.snapshots(snapshots / after))
    unknown = [
        f"replies and the step protocol: {version} has no snapshots"
        for version in (before, after)
        if not (snapshots / version).is_dir()
    ]
    surfaces: list[Surface] = []
    for version in (before, after):
        try:
            release = releases.find(version)
        except UsageError:
            unknown.append(f"the surface: {version} is not pinned")
            continue
        surface = wheels.surface_at_hand(wheels.any_build(release))
        if surface is None:
            unknown.append(
                f"the surface: {version} is neither in the cache nor installed; "
                f"`harness diff {before} {after}` reads it"
            )
        else:
            surfaces.append(surface)
    if len(surfaces) == len((before, after)):
        changes = diff.compare(*surfaces) + changes
    return sorted(changes, key=lambda change: diff.KINDS.index(change.kind)), unknown
