"""What changed between two releases for code that reaches into vLLM: the surface, and what was recorded live."""

from __future__ import annotations

import functools
import importlib.resources
import json
import tomllib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .structure import difference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .surface import Entry, Surface

# From what breaks a caller at once, over what changes it silently, to what only adds.
KINDS = (
    "removed",
    "parameter removed",
    "parameter required",
    "recorded live",
    "default changed",
    "returns changed",
    "moved",
    "parameter order",
    "parameter added",
    "added",
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of one object; ``used_by`` are the clients that declare its use in ``uses.toml``."""

    kind: str
    name: str
    detail: str
    used_by: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@functools.cache
def uses() -> Mapping[str, frozenset[str]]:
    """Which client relies on which objects."""
    text = importlib.resources.files(__package__).joinpath("uses.toml").read_text(encoding="utf-8")
    return {name: frozenset(row["objects"]) for name, row in tomllib.loads(text).items()}


def compare(before: Surface, after: Surface) -> list[Change]:
    """The changes of the surface, those that break a caller and those with users first."""
    changes: list[Change] = []
    for name in sorted(before.keys() | after.keys()):
        users = tuple(client for client, objects in uses().items() if name in objects)
        for kind, detail in _changes(before.get(name), after.get(name)):
            changes.append(Change(kind=kind, name=name, detail=detail, used_by=users))
    return sorted(changes, key=lambda change: (KINDS.index(change.kind), not change.used_by, change.name))


def _changes(before: Entry | None, after: Entry | None) -> list[tuple[str, str]]:
    if before is None:
        assert after is not None
        return [("added", f"{after.where}({', '.join(after.parameters)})")]
    if after is None:
        return [("removed", f"it was in {before.where}")]
    found: list[tuple[str, str]] = []
    if before.place.partition(":")[0] != after.place.partition(":")[0]:
        found.append(("moved", f"{before.where} -> {after.where}"))
    if before.returns != after.returns:
        found.append(("returns changed", f"{before.returns} -> {after.returns}"))
    return found + _parameter_changes(_split(before), _split(after))


def _split(entry: Entry) -> dict[str, str | None]:
    """Parameters with their defaults; None where there is none."""
    pairs = (parameter.partition("=") for parameter in entry.parameters)
    return {name: default if equals else None for name, equals, default in pairs}


def _parameter_changes(before: dict[str, str | None], after: dict[str, str | None]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, default in before.items():
        if name not in after:
            found.append(("parameter removed", f"{name}{'' if default is None else f' (was ={default})'}"))
        elif after[name] != default:
            if after[name] is None and not name.startswith("*"):
                found.append(("parameter required", f"{name} had the default {default}"))
            else:
                found.append(("default changed", f"{name}: {default or 'required'} -> {after[name]}"))
    for name, default in after.items():
        if name not in before:
            kind = "parameter added" if default is not None or name.startswith("*") else "parameter required"
            found.append((kind, name if default is None else f"{name}={default}"))
    kept = [name for name in before if name in after]
    if kept != [name for name in after if name in before]:
        found.append(("parameter order", f"{', '.join(kept)} -> {', '.join(n for n in after if n in before)}"))
    return found


def recorded(before: Path, after: Path) -> list[Change]:
    """What no signature shows, from two releases' snapshots of replies and of the step protocol."""
    changes = []
    for file in ("test_reply.json", "test_protocol.json"):
        if not ((before / file).exists() and (after / file).exists()):
            continue
        one, other = (json.loads((folder / file).read_text(encoding="utf-8")) for folder in (before, after))
        for name in sorted(one.keys() & other.keys()):
            if one[name] != other[name]:
                detail = "; ".join(difference(one[name], other[name]))
                detail = detail.replace("the value: ", "")
                changes.append(Change(kind="recorded live", name=name, detail=detail))
    return changes


def merged(changes: list[Change]) -> list[tuple[Change, int]]:
    """Changes with the same detail once, with how many there are: one cause shows on every engine."""
    first: dict[tuple[str, str, str], Change] = {}
    count: dict[tuple[str, str, str], int] = {}
    for change in changes:
        key = (change.kind, change.name.partition("[")[0], change.detail)
        first.setdefault(key, change)
        count[key] = count.get(key, 0) + 1
    return [(change, count[key]) for key, change in first.items()]


def lines(before: str, after: str, changes: list[Change]) -> list[str]:
    """The changes for a terminal, grouped by kind."""
    out = [f"vLLM {before} -> {after}: {len(changes)} changes in what clients rely on"]
    last = ""
    for change, times in merged(changes):
        if change.kind != last:
            out += ["", change.kind]
            last = change.kind
        users = f"   [{', '.join(change.used_by)}]" if change.used_by else ""
        more = f" (and {times - 1} more)" if times > 1 else ""
        out.append(f"  {change.name}{more}: {change.detail}{users}")
    return out


def markdown(before: str, after: str, changes: list[Change]) -> str:
    """The changes as a Markdown table."""
    rows = []
    for change, _times in merged(changes):
        detail = change.detail.replace("|", "\\|")
        rows.append(f"| {change.kind} | `{change.name}` | {detail} | {', '.join(change.used_by)} |")
    head = [f"## vLLM {before} -> {after}", "", "| kind | object | change | used by |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"
