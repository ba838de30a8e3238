"""States as numpy arrays, from whatever library they come: what cases do their arithmetic on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float32]


# How far states may be apart that ought to be equal, by the dtype in which the engine computes: from Hugging Face,
# and from themselves in another batch. As a part of the largest value, since that is what rounding goes with.
#
# float32: rounding reached 2e-6 after five layers, on every release whose kernels are exact. The smallest fault that
#   was met, router logits cast to bfloat16 (0.18.1 to 0.20.2), is at 7e-4 and more in every set of prompts.
# bfloat16: rounding reached 0.017 with DeepseekV2 and 0.022 with KimiK25, whose experts count 2.8-fold (Hugging
#   Face's own forward in bfloat16 against that in float32). What is to be told apart is at 0.19 and more:
#   neighbouring layers, a residual with and without the MLP's output, states before and after a norm.
TOLERANCES: Mapping[str, float] = {"float32": 1e-5, "bfloat16": 0.05}


def array(states: Any) -> Array:
    """The values as a float32 array on the CPU; bfloat16, which numpy lacks, is widened by its own library."""
    if hasattr(states, "detach"):
        states = states.detach().cpu().float().numpy()
    return np.asarray(states, dtype=np.float32)


def storage(states: Any) -> tuple[str, str, bool]:
    """How the values are kept: dtype, kind of device, and whether rows lie one after the other without gaps."""
    dtype = str(states.dtype).removeprefix("torch.")
    if hasattr(states, "is_contiguous"):
        return dtype, states.device.type, states.is_contiguous()
    return dtype, "cpu", states.flags.c_contiguous


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far two arrays are apart.

    ``largest`` is the largest absolute difference, over all and in ``row``, where it is; infinite where the shapes
    differ, nan where a value is no number. ``in_first_row`` is the largest of row 0. ``size`` is the largest absolute
    value of the second array.
    """

    largest: float
    row: int
    in_first_row: float
    size: float
    shapes: tuple[tuple[int, ...], tuple[int, ...]]

    def within(self, tolerance: float) -> bool:
        """Whether nothing is further apart than this part of ``size``; not where a value is no finite number."""
        return self.largest <= tolerance * self.size < float("inf")

    def __str__(self) -> str:
        one, other = self.shapes
        if one != other:
            return f"shape {list(one)} against {list(other)}"
        apart = f"{self.largest:.3g} apart, where the largest value is {self.size:.3g}"
        return f"{apart}; most in row {self.row}; row 0 is {self.in_first_row:.3g} apart"


def difference(one: Any, other: Any) -> Difference:
    """Compare the values of two states ``[n, ...]``, of any library and dtype."""
    one, other = array(one), array(other)
    shapes = (one.shape, other.shape)
    if one.shape != other.shape:
        return Difference(largest=float("inf"), row=0, in_first_row=float("inf"), size=0.0, shapes=shapes)
    if not one.size:
        return Difference(largest=0.0, row=0, in_first_row=0.0, size=0.0, shapes=shapes)
    with np.errstate(invalid="ignore", over="ignore"):  # Infinite less infinite is nan, which is what it should be.
        rows = np.abs(one - other).reshape(len(one), -1).max(axis=1)
    row = int(rows.argmax())
    size = float(np.abs(other).max())
    return Difference(largest=float(rows[row]), row=row, in_first_row=float(rows[0]), size=size, shapes=shapes)


def empty_rows(states: Any) -> list[int]:
    """The rows with nothing but zeros."""
    values = array(states)
    return [int(row) for row in np.flatnonzero(~values.reshape(len(values), -1).any(axis=1))]


def broken_rows(states: Any) -> list[int]:
    """The rows with a value that is not finite."""
    values = array(states)
    return [int(row) for row in np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))]
