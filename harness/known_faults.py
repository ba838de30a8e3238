"""Upstream faults as data: which cases must fail on which releases, with evidence and cause."""

from __future__ import annotations

import fnmatch
import functools
import importlib.resources
import tomllib
from dataclasses import dataclass

from .errors import CaptureError
from .findings import BrokenPromiseError


class KnownFaultError(BrokenPromiseError):
    """A case failed by a known fault that has states off, and by no more than that has."""


@dataclass(frozen=True, kw_only=True)
class KnownFault:
    """One fault of a release that is not the client's; ``cases`` are globs over case ids.

    ``within`` is how far it has states off at most, as a part of the largest value: what is further off is another
    fault. ``boots`` is false where it keeps engines from coming up, and then nothing else is excused.
    """

    releases: tuple[str, ...]
    device: str
    cases: tuple[str, ...]
    evidence: str
    cause: str
    link: str = ""
    within: float = 0.0
    boots: bool = True

    @property
    def raises(self) -> type[Exception]:
        """What a case fails with by this fault."""
        if not self.boots:
            return CaptureError
        return KnownFaultError if self.within else BrokenPromiseError

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
