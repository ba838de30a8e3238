"""The bisect search, as a pure function of what is known so far.

It knows neither releases nor what is asked of them: places in a row, oldest first, each of which behaves as the old
end of the row, as the new end, or cannot be told. The same verdicts always give the same next step, so a search
goes on after an interruption by being given the verdicts that it had.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict: TypeAlias = Literal["old", "new", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What to look at next.

    ``left`` is how many looks the search takes at most, this one included, if none of them is unknown.
    """

    place: int
    left: int


@dataclass(frozen=True, kw_only=True)
class WrongEnd:
    """An end of the row is not what it was said to be: there is nothing to search."""

    place: int
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The change is after ``old`` and not after ``new``; the places between them could not be told."""

    old: int
    new: int
    unknown: tuple[int, ...]


def next_step(count: int, verdicts: Mapping[int, Verdict]) -> Step | WrongEnd | Answer:
    """Both ends first, then the middle of the longest stretch that nothing is known about.

    The longest, so that one look past a place that cannot be told leaves the whole run of such places behind it.

    Args:
        count: how many places there are, 2 or more.
        verdicts: what is known, by place.
    """
    inner = range(1, count - 1)
    ends: tuple[tuple[int, Verdict], ...] = ((0, "old"), (count - 1, "new"))
    for number, (place, expected) in enumerate(ends):
        if place not in verdicts:
            return Step(place=place, left=len(ends) - number + len(inner).bit_length())
        if verdicts[place] != expected:
            return WrongEnd(place=place, verdict=verdicts[place])
    new = min(place for place, verdict in verdicts.items() if verdict == "new")
    old = max(place for place, verdict in verdicts.items() if verdict == "old" and place < new)
    stretches = _stretches(old, new, verdicts)
    if not stretches:
        return Answer(old=old, new=new, unknown=tuple(range(old + 1, new)))
    longest = max(stretches, key=len)
    open_places = sum(len(stretch) for stretch in stretches)
    return Step(place=longest[(len(longest) - 1) // 2], left=open_places.bit_length())


def ahead(count: int, verdicts: Mapping[int, Verdict], place: int) -> tuple[int, ...]:
    """The places that the step after ``place`` may be at, whichever end it behaves as."""
    outcomes: tuple[Verdict, ...] = ("old", "new")
    steps = [next_step(count, {**verdicts, place: outcome}) for outcome in outcomes]
    return tuple(dict.fromkeys(step.place for step in steps if isinstance(step, Step)))


def _stretches(old: int, new: int, verdicts: Mapping[int, Verdict]) -> list[range]:
    """The runs of places between two that nothing is known about, earliest first."""
    walls = [old, *(place for place in range(old + 1, new) if place in verdicts), new]
    gaps = (range(left + 1, right) for left, right in itertools.pairwise(walls))
    return [gap for gap in gaps if gap]
