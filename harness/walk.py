"""Walking somebody else's code from failure to failure: each is met for real, then repaired, until none is left."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .findings import BrokenPromiseError, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .clients.contract import Repair


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failure, and the repairs that were in place by then."""

    applied: tuple[str, ...]
    error: str


@dataclass(kw_only=True)
class Walk:
    """What was met.

    ``failures`` are by the repair that each asks for; ``applied`` is what was in place at the end; ``unexplained`` is
    a failure that no repair is for, or empty if nothing fails any more.
    """

    applied: tuple[str, ...]
    failures: dict[str, Failure] = field(default_factory=dict)
    unexplained: str = ""


def meant(repairs: Iterable[Repair], error: str) -> Repair | None:
    """The repair whose symptom a failure's text has."""
    return next((repair for repair in repairs if re.search(repair.symptom, error)), None)


def finding(repair: Repair, failure: Failure) -> Finding:
    """A failure as a finding, with what had been repaired before it."""
    return Finding(
        expected=f"to open and to capture twice, with {', '.join(failure.applied) or 'nothing'} in place",
        got=failure.error,
        cause=repair.cause,
        advice=repair.advice,
    )


def explained_by(repairs: Iterable[Repair], failure: Failure, error: Exception) -> Exception:
    """The finding of the repair that a failure asks for; the error itself if none is known."""
    repair = meant(repairs, failure.error)
    return error if repair is None else BrokenPromiseError(finding(repair, failure))


def walk(attempt: Callable[[tuple[str, ...]], str], repairs: Iterable[Repair], start: tuple[str, ...]) -> Walk:
    """Attempt, apply the repair that the failure asks for, and attempt again.

    Args:
        attempt: opens and captures with these repairs in place; the failure's text, empty if there was none.
        repairs: those there are.
        start: what is in place from the start.
    """
    walked = Walk(applied=start)
    left = [repair for repair in repairs if not repair.instead_of]
    instead = [repair for repair in repairs if repair.instead_of]
    while error := attempt(walked.applied):
        repair = meant(left, error)
        if repair is None:
            walked.unexplained = error
            break
        walked.failures[repair.name] = Failure(applied=walked.applied, error=error)
        for detour in instead:
            if detour.instead_of == repair.name:
                applied = (*walked.applied, detour.name)
                if error := attempt(applied):
                    walked.failures[detour.name] = Failure(applied=applied, error=error)
        left.remove(repair)
        walked.applied = (*walked.applied, repair.name)
    return walked
