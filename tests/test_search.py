"""The search against every row that it can meet: where the change is, what cannot be told, ends that are wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.search import Answer, Step, WrongEnd, ahead, next_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.search import Verdict

VERDICTS = st.sampled_from(["old", "new", "unknown"])


@st.composite
def rows(draw: st.DrawFn) -> list[Verdict]:
    """Rows with sound ends and one change; any inner place may be one that cannot be told."""
    count = draw(st.integers(2, 70))
    change = draw(st.integers(1, count - 1))
    unknown = draw(st.sets(st.integers(1, count - 2))) if count > 2 else set()
    return ["unknown" if place in unknown else "old" if place < change else "new" for place in range(count)]


def search(row: Sequence[Verdict]) -> tuple[Answer | WrongEnd, dict[int, Verdict]]:
    """Where a search ends, and what it looked at, in that order."""
    verdicts: dict[int, Verdict] = {}
    while isinstance(step := next_step(len(row), verdicts), Step):
        assert step.place not in verdicts, f"{step} a second time, after {verdicts}"
        verdicts[step.place] = row[step.place]
    return step, verdicts


@given(rows())
def test_the_answer_is_as_narrow_as_the_row_allows(row: list[Verdict]) -> None:
    first_new = row.index("new")
    last_old = max(place for place in range(first_new) if row[place] == "old")
    answer, _looked = search(row)
    assert answer == Answer(old=last_old, new=first_new, unknown=tuple(range(last_old + 1, first_new))), row


@given(rows())
def test_only_places_that_cannot_be_told_widen_the_answer(row: list[Verdict]) -> None:
    answer, _looked = search(row)
    assert isinstance(answer, Answer)
    assert {row[place] for place in answer.unknown} <= {"unknown"}, (row, answer)


@given(st.integers(2, 2000), st.data())
def test_a_row_that_can_be_told_takes_a_binary_search_and_its_two_ends(count: int, data: st.DataObject) -> None:
    change = data.draw(st.integers(1, count - 1))
    row: list[Verdict] = ["old" if place < change else "new" for place in range(count)]
    _answer, looked = search(row)
    assert len(looked) <= math.ceil(math.log2(count)) + 2, (count, change, looked)
    assert list(looked)[:2] == [0, count - 1], looked


@given(st.integers(2, 200), st.data())
def test_it_says_how_many_looks_are_left_and_never_takes_more(count: int, data: st.DataObject) -> None:
    change = data.draw(st.integers(1, count - 1))
    verdicts: dict[int, Verdict] = {}
    said: list[int] = []
    while isinstance(step := next_step(count, verdicts), Step):
        said.append(step.left)
        verdicts[step.place] = "old" if step.place < change else "new"
    assert all(left >= len(said) - number for number, left in enumerate(said)), said


@given(st.lists(VERDICTS, min_size=2, max_size=40))
def test_any_row_ends_after_each_place_was_looked_at_once_at_most(row: list[Verdict]) -> None:
    end, looked = search(row)
    if row[0] != "old":
        assert end == WrongEnd(place=0, verdict=row[0])
    elif row[-1] != "new":
        assert end == WrongEnd(place=len(row) - 1, verdict=row[-1])
    else:
        assert isinstance(end, Answer)
        assert (row[end.old], row[end.new]) == ("old", "new"), (row, end)
    assert set(looked) <= set(range(len(row)))


@given(rows(), st.data())
def test_a_search_that_is_cut_off_goes_on_with_the_same_step(row: list[Verdict], data: st.DataObject) -> None:
    answer, looked = search(row)
    order = list(looked)
    kept = data.draw(st.integers(0, len(order)))
    # Verdicts are read back from a file, in any order.
    verdicts = {place: looked[place] for place in data.draw(st.permutations(order[:kept]))}
    step = next_step(len(row), verdicts)
    assert step == (answer if kept == len(order) else Step(place=order[kept], left=step.left)), (row, verdicts)  # type: ignore[union-attr]


@given(rows())
def test_what_comes_next_was_prepared_unless_the_place_cannot_be_told(row: list[Verdict]) -> None:
    verdicts: dict[int, Verdict] = {}
    while isinstance(step := next_step(len(row), verdicts), Step):
        prepared = ahead(len(row), verdicts, step.place)
        assert len(prepared) <= 2, prepared
        verdicts[step.place] = row[step.place]
        after = next_step(len(row), verdicts)
        if isinstance(after, Step) and row[step.place] != "unknown":
            assert after.place in prepared, (row, step, prepared)


@pytest.mark.parametrize("width", [3, 9, 15])
def test_a_run_of_places_that_cannot_be_told_is_not_walked_through(width: int) -> None:
    """One look at it, then past it: a broken stretch of builds costs an environment a look."""
    row: list[Verdict] = [
        "old" if place < 30 else "unknown" if 32 <= place < 32 + width else "new" for place in range(64 + width)
    ]
    _answer, looked = search(row)
    unknown = [place for place in looked if row[place] == "unknown"]
    assert len(unknown) <= math.ceil(math.log2(width)), looked
