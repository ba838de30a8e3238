"""Upstream faults as data: which cases must fail on which releases, with evidence and cause."""

from __future__ import annotations

import fnmatch
import functools
import importlib.resources
import tomllib
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KnownFault:
    """One fault of a release that is not the client's; ``cases`` are globs over case ids."""

    releases: tuple[str, ...]
    device: str
    cases: tuple[str, ...]
    evidence: str
    cause: str
    link: str = ""

    def covers(self, release: str, device: str, case: str) -> bool:
        return (
            release in self.releases
            and device == self.device
            and any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)
        )


@functools.cache
def load() -> tuple[KnownFault, ...]:
    """All known faults."""
    text = importlib.resources.files(__package__).joinpath("known_faults.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text).get("fault", [])
    lists = ("releases", "cases")
    return tuple(KnownFault(**row | {name: tuple(row[name]) for name in lists}) for row in rows)


def of_case(release: str, device: str, case: str) -> KnownFault | None:
    """The known fault that says a case must fail, if there is one."""
    return next((fault for fault in load() if fault.covers(release, device, case)), None)
