from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from delivering import FORM, states, text
from safetensors.numpy import load_file

from harness.extraction.layouts import ITEM_BYTES, LAYOUTS, Form

if TYPE_CHECKING:
    from pathlib import Path

CONNECTOR = LAYOUTS["connector"]


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("length", [1, 7, 511, 512])
def test_rows_start_at_a_page_and_the_file_is_one_that_safetensors_reads(
    tmp_path: Path, length: int, mask: bool
) -> None:
    head = CONNECTOR.head(FORM, text(length, mask=mask))
    assert len(head) % 4096 == 0
    path = tmp_path / CONNECTOR.file(12)
    path.write_bytes(head + states(0, length).tobytes())
    tensors = load_file(path)
    assert path.name == "12.safetensors"
    assert set(tensors) == {"hidden_states", "token_ids", *(("loss_mask",) if mask else ())}
    assert tensors["token_ids"].dtype == np.int64
    assert tensors["token_ids"].tolist() == list(range(length))
    assert np.array_equal(tensors["hidden_states"], states(0, length))
    if mask:
        assert tensors["loss_mask"].tolist() == [1] * length


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_header_says_the_models_dtype(dtype: str) -> None:
    form = Form(layers=3, hidden_size=5, dtype=dtype)
    head = CONNECTOR.head(form, text(4))
    header = json.loads(head[8 : 8 + int.from_bytes(head[:8], "little")])
    assert form.row_bytes == 15 * ITEM_BYTES[dtype]
    assert header["hidden_states"] == {
        "dtype": {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[dtype],
        "shape": [4, 3, 5],
        "data_offsets": [32, 32 + 4 * form.row_bytes],
    }
