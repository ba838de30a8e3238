from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.arrays import array, broken_rows, difference, empty_rows, storage


@dataclass
class Tensor:
    """As much of a torch tensor as is asked for; its values can be read only the long way round."""

    values: Any
    dtype: str = "torch.bfloat16"
    contiguous: bool = True

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def float(self) -> SimpleNamespace:
        return SimpleNamespace(numpy=lambda: np.asarray(self.values, dtype=np.float32))

    def is_contiguous(self) -> bool:
        return self.contiguous

    @property
    def device(self) -> SimpleNamespace:
        return SimpleNamespace(type="cuda")


@pytest.mark.parametrize("states", [Tensor([[1, 2.5]]), np.array([[1, 2.5]], dtype=np.float64), [[1, 2.5]]])
def test_values_become_a_float32_array(states: Any) -> None:
    got = array(states)
    assert (str(got.dtype), got.tolist()) == ("float32", [[1.0, 2.5]])


def test_storage_is_the_objects_own() -> None:
    assert storage(Tensor([[1]], contiguous=False)) == ("bfloat16", "cuda", False)
    rows = np.zeros((3, 4), dtype=np.float16)
    assert storage(rows) == ("float16", "cpu", True)
    assert storage(rows.T) == ("float16", "cpu", False)


def test_difference_says_how_far_and_where() -> None:
    one = np.zeros((3, 2))
    other = np.array([[0.0, 0.25], [0.0, -3.0], [1.0, 0.0]])
    apart = difference(one, Tensor(other))
    assert (apart.largest, apart.row, apart.in_first_row) == (3.0, 1, 0.25)
    assert (apart.within(1.0), apart.within(0.9)) == (True, False)
    assert str(apart) == "3 apart, where the largest value is 3; most in row 1; row 0 is 0.25 apart"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_within_nothing(value: float) -> None:
    apart = difference([[1.0], [value]], [[1.0], [value]])
    assert not apart.within(1e9)
    assert apart.row == 1


def test_other_shapes_are_infinitely_far_apart() -> None:
    apart = difference(np.zeros((5, 4)), np.zeros((4, 4)))
    assert not apart.within(1e9)
    assert str(apart) == "shape [5, 4] against [4, 4]"


def test_nothing_equals_nothing() -> None:
    assert difference(np.zeros((0, 4)), np.zeros((0, 4))).within(0.0)


def test_rows_of_zeros_and_rows_without_a_number_are_found() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 0.0], [math.nan, 1.0], [-1.0, 2.0], [1.0, math.inf]])
    assert (empty_rows(rows), broken_rows(rows)) == ([1], [2, 4])
    assert (empty_rows(np.zeros(2)), broken_rows(np.zeros(2))) == ([0, 1], [])
