from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.extraction.ring import ALIGNMENT, Ring, Span

PAGES = 16


def pages(count: int) -> int:
    return count * ALIGNMENT


def taken(span: Span | None) -> Span:
    assert span is not None
    return span


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("reserve"), st.integers(1, pages(PAGES))),
            st.tuples(st.just("release"), st.integers(0, 100)),
        ),
        max_size=60,
    )
)
def test_spans_never_overlap_and_stay_inside(actions: list[tuple[str, int]]) -> None:
    ring = Ring(pages(PAGES))
    held: list[Span] = []
    for action, number in actions:
        if action == "release" and held:
            ring.release(held.pop(number % len(held)))
        elif action == "reserve" and ring._room(-(-number // ALIGNMENT) * ALIGNMENT) is not None:
            span = taken(ring.reserve(number))
            assert 0 <= span.start < span.stop <= ring.capacity, span
            assert span.stop - span.start >= number, span
            assert span.start % ALIGNMENT == 0, span
            assert all(span.stop <= one.start or one.stop <= span.start for one in held), (span, held)
            held.append(span)
    for span in held:
        ring.release(span)
    assert taken(ring.reserve(ring.capacity)).start == 0, "an empty ring has room for all of it"


def test_what_was_given_back_in_the_middle_is_had_once_what_is_older_is_back() -> None:
    ring = Ring(pages(4))
    first, second = taken(ring.reserve(pages(2))), taken(ring.reserve(pages(2)))
    ring.release(second)
    assert ring._room(pages(1)) is None
    ring.release(first)
    assert ring._room(pages(4)) == 0


def test_more_than_the_ring_is_refused_and_not_waited_for() -> None:
    with pytest.raises(ValueError, match="do not fit a ring of 4096"):
        Ring(pages(1)).reserve(pages(1) + 1)


def test_who_finds_no_room_waits_until_there_is_some_and_the_wait_is_counted() -> None:
    ring = Ring(pages(2))
    first = taken(ring.reserve(pages(2)))
    got: list[Span | None] = []
    waiting = threading.Thread(target=lambda: got.append(ring.reserve(pages(1))))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive(), got
    assert ring.stalled == 0.0
    ring.release(first)
    waiting.join(10)
    assert [span.start for span in map(taken, got)] == [0]
    assert ring.stalled > 0.0


def test_closing_frees_who_waits_and_gives_nothing_out() -> None:
    ring = Ring(pages(1))
    taken(ring.reserve(pages(1)))
    got: list[Span | None] = []
    waiting = threading.Thread(target=lambda: got.append(ring.reserve(1)))
    waiting.start()
    time.sleep(0.05)
    ring.close()
    waiting.join(10)
    assert got == [None]
    assert ring.reserve(1) is None
