from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness import recognition
from harness.arrays import TOLERANCES

GENERATOR = np.random.default_rng(0)
ROWS = {
    name: GENERATOR.standard_normal((count, 8)).astype(np.float32)
    for name, count in {"0.0": 6, "0.0.norm": 6, "0.1": 6, "0.1.attention": 6, "0.1.norm": 6, "1.1": 4}.items()
}
OWN = ROWS["0.1"]


def _rows(states: Any) -> str:
    return recognition.rows(states, ROWS, "", 0, 1, TOLERANCES["float32"])


@pytest.mark.parametrize(
    ("states", "cause"),
    [
        (ROWS["0.0"], "these are the states of layer 0: captured -1 layers away"),
        (ROWS["1.1"], "these are the rows of prompt 1"),
        (ROWS["0.1.norm"], "after the norm"),
        (ROWS["0.0"] + ROWS["0.1.norm"], "kept without a copy, and changed in place"),
        (ROWS["0.1.attention"] + ROWS["0.0.norm"], "kept without a copy, and changed in place"),
        (np.concatenate([ROWS["1.1"], OWN[4:]]), "they begin like other states: these are the rows of prompt 1"),
        (np.concatenate([OWN[:2], OWN[:1], OWN[3:]]), "rows 2 to 2 are wrong and 5 are right"),
        (OWN[[0, 2, 4]], "3 rows for 6 tokens, and they are neither the first nor the last ones"),
        (np.concatenate([OWN[1:], OWN]), "11 rows for 6 tokens, and the prompt's own do not come first"),
        (OWN * 3, "scaled by 3"),
        (OWN * 0, "all zeros"),
        (OWN[:, :4], "the shape is another, [6, 4]"),
        (OWN + 0.01, "the computation differs"),
    ],
)
def test_wrong_rows_are_recognised(states: Any, cause: str) -> None:
    assert cause in _rows(states)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ([[3], [1, 2]], "sorted by length"),
        ([[1, 2]], "prompts [1] have no sample"),
        ([[1, 2], [1, 2], [3]], "prompt 0 has more than one sample"),
        ([[1, 2], [4]], "token ids were changed"),
        ([[0, 1, 2], [0, 3]], "special tokens were added"),
        ([[1], [3]], "it was cut"),
    ],
)
def test_wrong_order_is_recognised(given: list[list[int]], cause: str) -> None:
    assert cause in recognition.order([[1, 2], [3]], given)


def test_other_order_than_by_length_is_the_runners() -> None:
    assert "order of the runner's batch" in recognition.order([[1], [2, 2], [3, 3, 3]], [[2, 2], [1], [3, 3, 3]])
