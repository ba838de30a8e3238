"""Whether a record of a run says anything about this environment, now: rules on plain data."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .evidence import Evidence

MAX_AGE_DAYS = 7.0
_SHOWN = 60  # Characters: a version and a list of devices are shown whole, a digest is not.
# Of `identity.environment`: what each is called in a sentence. Capabilities and generation follow from RECORD.
_FACTS = {
    "distribution": "distribution of vLLM",
    "version": "vLLM",
    "record_sha256": "RECORD of vLLM's files",
    "python": "Python",
    "machine": "processor architecture",
    "platform": "system",
}
_DEVICES = {"kind": "device", "names": "devices", "count": "number of devices", "driver": "driver"}


@dataclass(frozen=True, kw_only=True)
class Here:
    """What evidence has to be of: `identity.environment` with `identity.of_run`, and the state of the suite.

    ``client`` is the run's; ``max_age`` in days.
    """

    facts: Mapping[str, Any]
    client: str
    harness: str
    suite: str
    now: dt.datetime
    max_age: float = MAX_AGE_DAYS


def objections(record: Evidence, here: Here) -> list[str]:
    """Why a record does not count here, all of it; empty if it does."""
    said = [*_of_the_suite(record, here), *_of_its_age(record, here)]
    theirs, ours = record.environment, here.facts
    said += _differing(_FACTS, theirs, ours)
    said += _differing(
        {name: name for name in ours.get("packages", {})}, _part(theirs, "packages"), _part(ours, "packages")
    )
    said += _differing(_DEVICES, _part(theirs, "devices"), _part(ours, "devices"))
    said += _variables(_part(theirs, "variables"), _part(ours, "variables"))
    said += _client(theirs, here)
    return said


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = facts.get(name)
    return part if isinstance(part, dict) else {}


def _of_the_suite(record: Evidence, here: Here) -> Iterator[str]:
    if record.harness != here.harness:
        yield f"it is of harness {record.harness}, and this is {here.harness}"
    if record.suite != here.suite:
        yield "it is of another state of the suite: a case, a snapshot or the harness has changed since"
    if other := record.settings.get("snapshots_of"):
        yield f"it was held to the snapshots of {other}, not of this release"


def _of_its_age(record: Evidence, here: Here) -> Iterator[str]:
    try:
        started = dt.datetime.fromisoformat(record.started)
        age = (here.now - started).total_seconds() / 86400
    except (TypeError, ValueError):
        yield f"it says that it started at {record.started!r}, which is no time with a zone"
        return
    if age < 0:
        yield f"it is from the future: it started {record.started}, and this clock says {here.now.isoformat()}"
    elif age > here.max_age:
        yield f"it is {age:.1f} days old, and may be {here.max_age:g}"


def _differing(names: Mapping[str, str], theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    for name, called in names.items():
        if theirs.get(name) != ours.get(name):
            yield f"{called}: it is of {_short(theirs.get(name))}, and here is {_short(ours.get(name))}"


def _variables(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            yield f"{name}: it is of {_short(theirs.get(name))}, and here is {_short(ours.get(name))}"


def _client(theirs: Mapping[str, Any], here: Here) -> Iterator[str]:
    known, own = _part(theirs, "clients"), _part(here.facts, "clients").get(here.client)
    if here.client not in known:
        yield f"it is of client {', '.join(sorted(known)) or 'nobody'}, and the run's is {here.client}"
    elif known[here.client] != own:
        yield f"the code of client {here.client} has changed since"


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else "nothing" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:16]}..."
