"""What changed between two releases for code that reaches into vLLM: the surface, and what was recorded live."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from . import uses, watched
from .structure import difference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .entries import Entry
    from .structure import JSON
    from .surface import Surface

# From what breaks a caller at once, over what changes it silently, to what only adds.
KINDS = (
    "removed",
    "moved",
    "parameter removed",
    "parameter required",
    "keyword only",
    "recorded live",
    "default changed",
    "changed",
    "returns changed",
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


def compare(before: Surface, after: Surface) -> list[Change]:
    """The changes of the surface, those that break a caller and those with users first."""
    changes: list[Change] = []
    for name in sorted(before.keys() | after.keys()):
        users = tuple(client.name for client in uses.declared().values() if name in client.objects)
        for kind, detail in _changes(before.get(name), after.get(name)):
            changes.append(Change(kind=kind, name=name, detail=detail, used_by=users))
    return sorted(changes, key=lambda change: (KINDS.index(change.kind), not change.used_by, change.name))


def _changes(before: Entry | None, after: Entry | None) -> list[tuple[str, str]]:
    if before is None:
        assert after is not None
        return [("added", f"in {after.module}: ({', '.join(after.parameters)})")]
    if after is None:
        return [("removed", f"it was in {before.module}")]
    found: list[tuple[str, str]] = []
    # Defined elsewhere, but still to be imported from where it was, it has not moved.
    if not {before.module, *before.also} <= {after.module, *after.also}:
        found.append(("moved", f"{before.where} -> {after.where}"))
    if before.returns != after.returns and not after.name.endswith(".__init__"):
        found.append(("returns changed", f"{before.returns or 'no word'} -> {after.returns or 'no word'}"))
    if after.shape == "is":
        changed = _word_changes(before.parameters, after.parameters)
        return [*found, ("changed", changed)] if changed else found
    only = sorted(_keyword_only(after) & (set(before.parameter_names) - _keyword_only(before)))
    found += [("keyword only", name) for name in only]
    found += _parameter_changes(_split(before), _split(after))
    # Nobody gives the fields of a dataclass by position.
    return [each for each in found if each[0] != "parameter order" or after.shape == "takes"]


def _word_changes(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    gone, new = ([word for word in one if word not in other] for one, other in ((before, after), (after, before)))
    if len(gone) == len(new) == 1:
        return f"{gone[0]} -> {new[0]}"
    lists = (("gone", gone), ("new", new))
    return "; ".join(f"{what}: {', '.join(words)}" for what, words in lists if words)


def _keyword_only(entry: Entry) -> set[str]:
    parameters = [*entry.parameters]
    stars = [number for number, each in enumerate(parameters) if each.startswith("*") and not each.startswith("**")]
    return {each.partition("=")[0] for each in parameters[stars[0] + 1 :]} if stars else set()


def _split(entry: Entry) -> dict[str, str | None]:
    """Parameters with their defaults; None where there is none."""
    pairs = (parameter.partition("=") for parameter in entry.parameters if parameter not in ("*", "/"))
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


def snapshots(folder: Path) -> dict[str, JSON]:
    """What no signature shows, of one release: its snapshots of replies and of the step protocol, if it has them.

    Returns:
        ``test_reply/test_first_rank[executor-mp-tp1]`` and the like, to what was recorded.
    """
    found: dict[str, JSON] = {}
    for file in ("test_reply", "test_protocol"):
        path = folder / f"{file}.json"
        if path.exists():
            held = json.loads(path.read_text(encoding="utf-8"))
            found |= {f"{file}/{name}": value for name, value in held.items()}
    return found


def recorded(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> list[Change]:
    """What differs between two releases' snapshots, under the names of the cases."""
    changes = []
    for name in sorted(before.keys() & after.keys()):
        detail = "; ".join(difference(before[name], after[name])).replace("the value: ", "")
        if detail:
            users = tuple(client.name for client in uses.declared().values() if name in client.recorded)
            changes.append(Change(kind="recorded live", name=name.partition("/")[2], detail=detail, used_by=users))
    return changes


def merged(changes: list[Change]) -> list[tuple[Change, int]]:
    """Changes with the same detail once, with how many there are: one cause shows on every engine."""
    alike: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes:
        alike.setdefault((change.kind, change.name.partition("[")[0], change.detail), []).append(change)
    return [
        (replace(group[0], used_by=tuple(dict.fromkeys(user for each in group for user in each.used_by))), len(group))
        for group in alike.values()
    ]


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
        means = f" ({watched.MEANS[change.name]})" if change.name in watched.MEANS else ""
        out.append(f"  {change.name}{means}{more}: {change.detail}{users}")
    return out


def markdown(before: str, after: str, changes: list[Change]) -> str:
    """The changes as a Markdown table."""
    rows = []
    for change, _times in merged(changes):
        detail = change.detail.replace("|", "\\|")
        rows.append(f"| {change.kind} | `{change.name}` | {detail} | {', '.join(change.used_by)} |")
    head = [f"## vLLM {before} -> {after}", "", "| kind | object | change | used by |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"
