from __future__ import annotations

import pytest

from harness.findings import BrokenPromiseError, Finding, alike, expect

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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("rows [1, 2] are zero", "rows [17] are zero", False),
        ("row 1 is zero", "row 17 is zero", True),
        ("error in /a/0.12.0/x.py, line 3", "error in /b/c/0.13.0/x.py, line 5", True),
        ("error in /a/x.py", "error in /a/y.py", False),
        ("<Worker at 0x7f00ab>", "<Worker at 0x12cd>", True),
        ("unexpected keyword argument 'eos_token_id'", "unexpected keyword argument 'block_size'", False),
        ("1/2 of the rows", "3/4 of the rows", True),
    ],
)
def test_the_same_failure_whatever_its_numbers_and_folders(one: str, other: str, same: bool) -> None:
    first, second = (Finding(**{**PARTS, "got": got}) for got in (one, other))
    assert alike(first, second) == same
    assert not alike(first, Finding(**{**PARTS, "got": one, "cause": "something else"}))
    assert alike(first, Finding(**{**PARTS, "got": one, "expected": "the same, with more in place"}))
