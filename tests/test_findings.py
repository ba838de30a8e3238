from __future__ import annotations

import pytest

from harness.findings import BrokenPromiseError, Finding, expect

PARTS = {"expected": "4 tensors [512, 7168]", "got": "771 tensors\n[512]", "cause": "taken [0]", "advice": "do not"}


def test_a_promise_that_holds_raises_nothing() -> None:
    expect(True, **PARTS)


def test_a_broken_promise_carries_its_finding() -> None:
    with pytest.raises(BrokenPromiseError) as caught:
        expect(False, **PARTS)
    assert caught.value.finding == Finding(**PARTS)
    assert caught.value.finding.as_dict() == PARTS


def test_a_broken_promise_is_a_failed_assertion() -> None:
    assert issubclass(BrokenPromiseError, AssertionError)


def test_explanation_holds_every_part_and_lines_up() -> None:
    said = str(BrokenPromiseError(Finding(**PARTS)))
    assert said.splitlines() == [
        "expected  4 tensors [512, 7168]",
        "got       771 tensors",
        "          [512]",
        "cause     taken [0]",
        "to do     do not",
    ]
