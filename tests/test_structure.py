from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.structure import depth, describe, difference

if TYPE_CHECKING:
    from harness.structure import JSON


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: str = "torch.float32"


T = Tensor((5, 64))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def _text(value: JSON) -> str:
    """As a snapshot is compared; the sign of zero is no structure."""
    return json.dumps(value, sort_keys=True).replace("-0.0", "0.0")


@given(TREES)
def test_nothing_differs_from_itself(tree: JSON) -> None:
    assert difference(tree, json.loads(json.dumps(tree))) == []


@given(TREES, TREES)
def test_difference_is_empty_both_ways_or_neither(one: JSON, other: JSON) -> None:
    assert bool(difference(one, other)) == bool(difference(other, one)), (one, other)


@given(TREES, TREES)
def test_difference_is_empty_only_for_equal_json(one: JSON, other: JSON) -> None:
    assert (difference(one, other) == []) == (_text(one) == _text(other)), (one, other, difference(one, other))


@pytest.mark.parametrize(
    ("one", "other"), [([True], [1]), ([1.0], [1]), ({"a": [0]}, {"a": [False]}), ([[1]], [[True]])]
)
def test_items_of_another_type_differ(one: JSON, other: JSON) -> None:
    assert difference(one, other), (one, other)


@given(TREES)
def test_a_tree_and_a_list_of_it_differ(tree: JSON) -> None:
    assert difference(tree, [tree]), tree
    assert difference([tree], tree), tree


@given(TREES, st.text(max_size=3))
def test_every_line_names_the_path(tree: JSON, key: str) -> None:
    for line in difference({"outer": {key: tree}}, {"outer": {key: [tree, "more"]}}):
        assert line.startswith("outer"), line


@given(st.recursive(st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_description_is_json(value: Any) -> None:
    assert json.loads(json.dumps(describe(value))) == describe(value)


@pytest.mark.parametrize(
    ("value", "structure"),
    [
        (T, "tensor float32 [5, 64]"),
        (Tensor((), "bfloat16"), "tensor bfloat16 []"),
        ([T, T], ["tensor float32 [5, 64]"] * 2),
        ((T, None), {"tuple": ["tensor float32 [5, 64]", None]}),
        ({0: T, 30: T}, {"0": "tensor float32 [5, 64]", "30": "tensor float32 [5, 64]"}),
        ({(0, 1): 2}, {"(0, 1)": 2}),
        (b"abc", "bytes of 3"),
        (bytearray(2), "bytearray of 2"),
        (memoryview(b"abcd"), "memoryview of 4"),
        (["float32", [5, 64], 1], ["float32", [5, 64], 1]),
        (True, True),
        (object(), "builtins.object"),
    ],
)
def test_description(value: Any, structure: JSON) -> None:
    assert describe(value) == structure


def test_numbers_of_a_tensor_are_not_described() -> None:
    assert describe({"a": Tensor((3,))}) == describe({"a": Tensor((3,))})


def test_the_story_is_seen() -> None:
    """``unique_reply_rank`` gave a list of one and gives the bare value: the client still takes ``[0]``."""
    before, after = describe([[T, T, T, T]]), describe([T, T, T, T])
    lines = difference(before, after)
    assert len(lines) == 1, lines
    assert "list" in lines[0], lines
    assert depth(before) == depth(after) + 1 == 2


def test_one_tensor_and_a_list_of_it_differ() -> None:
    (line,) = difference(describe([T]), describe(T))
    assert "tensor float32 [5, 64]" in line, line


@pytest.mark.parametrize(
    ("value", "levels"), [(None, 0), ("text", 0), ([], 0), ([1], 1), ([[1], 2], 2), ([[]], 1), ([{"a": [1]}], 1)]
)
def test_depth_is_that_of_the_first_leaf(value: JSON, levels: int) -> None:
    assert depth(value) == levels


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        ({"a": 1}, {}, "a: missing"),
        ({}, {"a": 1}, "a: new: 1"),
        ({"a": {"b": [{"c": 1}]}}, {"a": {"b": [{"c": 2}]}}, "a.b[0].c: expected 1, got 2"),
        ([[1], [2]], [[1], [2], [3]], "the value: 2 items expected, 3 got"),
        (["a", "b"], ["a", "c"], "the value: gone: 'b'"),
        (["a", "b"], ["b", "a"], "the value: expected ['a', 'b'], got ['b', 'a']"),
        (None, "x" * 500, "..."),
    ],
)
def test_difference_says_where_and_what(expected: JSON, got: JSON, said: str) -> None:
    lines = difference(expected, got)
    assert any(said in line for line in lines), lines
    assert all(len(line) < 400 for line in lines), lines


def test_arguments_added_and_gone_are_listed_by_name() -> None:
    before = cast("JSON", {"Request.__init__": {"takes": ["request_id", "eos_token_id", "arrival_time=None"]}})
    after = cast("JSON", {"Request.__init__": {"takes": ["request_id", "arrival_time=None", "block_hasher=None"]}})
    assert difference(before, after) == [
        "Request.__init__.takes: gone: 'eos_token_id'",
        "Request.__init__.takes: new: 'block_hasher=None'",
    ]
