from __future__ import annotations

import re

import pytest

from harness.extraction.layouts import Form
from harness.extraction.room import refusal, staged_bytes

ALL_LAYERS = Form(layers=61, hidden_size=7168, dtype="bfloat16")


def test_what_states_take_is_two_forwards_of_rows_and_a_byte_a_row_and_layer() -> None:
    one = Form(layers=1, hidden_size=7168, dtype="bfloat16")
    assert staged_bytes(one, 8192) == 8192 * (2 * 7168 * 2 + 1)
    assert staged_bytes(ALL_LAYERS, 8192) == 61 * staged_bytes(one, 8192)


@pytest.mark.parametrize("free", [0, 10 * 2**30, 13 * 2**30, 40 * 2**30])
def test_what_is_advised_makes_room(free: int) -> None:
    total, needed = 139 * 2**30, staged_bytes(ALL_LAYERS, 8192)
    said = refusal(ALL_LAYERS, 8192, free=free, total=total, utilization=0.92)
    assert f"take {needed:,} bytes of each GPU" in said, said
    assert f"vLLM has left {free:,}." in said, said
    assert "--max-num-batched-tokens" in said, said
    found = re.search(r"gpu_memory_utilization, which is 0\.92, by (\d\.\d\d) or more", said)
    assert found is not None, said
    assert 0 < float(found[1]) < 0.92, said
    assert free + float(found[1]) * total > needed, said
