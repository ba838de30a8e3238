"""Of ``harness.prompts``: ``cases`` holds a module of that name."""

from __future__ import annotations

import itertools

import pytest

from harness.prompts import LENGTHS, prompts


@pytest.mark.parametrize("vocabulary", [128, 1000, 163840])
def test_prompts_can_be_told_apart(vocabulary: int) -> None:
    given = prompts(vocabulary)
    assert [len(prompt) for prompt in given] == list(LENGTHS)
    assert {token for prompt in given for token in prompt} <= set(range(2, vocabulary))
    for one, other in itertools.combinations(given, 2):
        assert one[0] != other[0], (one, other)


def test_prompts_are_the_same_every_time() -> None:
    assert prompts(128) == prompts(128)


def test_lengths_are_distinct_and_in_no_order() -> None:
    assert len(set(LENGTHS)) == len(LENGTHS)
    assert list(LENGTHS) not in (sorted(LENGTHS), sorted(LENGTHS, reverse=True))
