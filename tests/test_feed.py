from __future__ import annotations

from array import array
from typing import Any

import pytest

from harness.errors import CAPTURE_ERRORS, DamagedStatesError, DeliveryError
from harness.extraction.feed import Feed, announced
from harness.extraction.jobs import Job


def job(index: int, length: int = 10) -> Job:
    return Job(index=index, token_ids=array("q", range(length)))


def delivered(*indices: int) -> dict[str, Any]:
    rows = [{"index": index, "file": f"{index}.x", "tokens": 10, "bytes": 80} for index in indices]
    return {"delivered": rows, "failed": [], "stalled": 0.0}


def failed(index: int, kind: str = "DeliveryError") -> dict[str, Any]:
    return {
        "delivered": [],
        "failed": [{"kind": kind, "index": index, "text": f"sample {index}: no"}],
        "stalled": 0.0,
    }


def test_jobs_go_out_in_order_by_tokens_and_one_at_the_least() -> None:
    feed = Feed()
    feed.add([job(index, length) for index, length in enumerate((10, 10, 10, 500, 10))])
    assert [[one.index for one in feed.take(20)] for _turn in range(4)] == [[0, 1], [2, 3], [4], []]
    assert feed.waiting == set(range(5)), "handed out is not delivered"
    assert not feed.queued


def test_deliveries_are_handed_over_once_with_their_rank_and_figures() -> None:
    feed = Feed()
    feed.add([job(0), job(1), job(2)])
    heard = feed.hear([{**delivered(0, 2), "stalled": 0.25}, {**delivered(1), "stalled": 0.5}])
    first, second = feed.progress(), feed.progress()
    assert heard == 3
    assert [(one.index, one.rank) for one in first.delivered] == [(0, 0), (2, 0), (1, 1)]
    assert (first.tokens, first.bytes, first.stalled, first.waiting) == (30, 240, 0.5, 0)
    assert (second.delivered, second.tokens, second.stalled) == ((), 0, 0.0)


def test_what_was_delivered_is_handed_over_before_a_failure_is_raised() -> None:
    feed = Feed()
    feed.add([job(0), job(1), job(2)])
    feed.hear([delivered(0), failed(1)])
    assert [one.index for one in feed.progress().delivered] == [0]
    with pytest.raises(DeliveryError, match=r"^sample 1: no$"):
        feed.progress()


def test_the_first_of_several_failures_says_how_many_more() -> None:
    feed = Feed()
    feed.hear([failed(1, "DamagedStatesError"), failed(2)])
    with pytest.raises(DamagedStatesError, match=r"^sample 1: no \(1 more samples failed\)$"):
        feed.progress()


def test_a_job_that_waits_is_not_taken_again() -> None:
    feed = Feed()
    feed.add([job(0)])
    with pytest.raises(ValueError, match="job 0 is waiting already"):
        feed.add([job(0)])
    feed.take(10)
    feed.hear([delivered(0)])
    feed.add([job(0)])
    assert feed.waiting == {0}


def test_workers_get_ids_and_mask_as_int64() -> None:
    assert announced(Job(index=3, token_ids=array("q", (1, 2)), loss_mask=array("q", (0, 1)))) == (
        3,
        array("q", [1, 2]).tobytes(),
        array("q", [0, 1]).tobytes(),
    )
    assert announced(job(0, 0)) == (0, b"", None)


def test_a_full_disk_is_the_environments_and_a_bad_row_a_finding() -> None:
    assert (CAPTURE_ERRORS["DeliveryError"].exit_code, CAPTURE_ERRORS["DamagedStatesError"].exit_code) == (4, 1)
