"""The tiny checkpoints, as far as that needs no torch: what their configs divide among."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flow
import pytest

from harness import check, models, settings
from harness.errors import UsageError
from harness.models import deepseek_v2, kimi_k25

if TYPE_CHECKING:
    from pathlib import Path

# vLLM pads a vocabulary to a multiple of this (model_executor/layers/vocab_parallel_embedding.py, 0.11.0 to 0.32.0).
PADDING = 64
SIZES = (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize("ranks", SIZES)
def test_every_rank_gets_as_much(ranks: int) -> None:
    kimi = kimi_k25.config(ranks)
    for text in (deepseek_v2.config(ranks), kimi["text_config"]):
        shared: dict[str, int] = {
            name: text[name]
            for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size", "moe_intermediate_size")
        }
        assert {name: size % ranks for name, size in shared.items()} == dict.fromkeys(shared, 0), shared
        assert text["vocab_size"] % PADDING == 0
        assert text["vocab_size"] % ranks == 0
        # What the CPU kernel for grouped experts takes (0.17.1, fused_moe/cpu_fused_moe.py).
        assert 2 * text["moe_intermediate_size"] // ranks % 64 == 0
    vision = kimi["vision_config"]
    assert (vision["num_attention_heads"] % ranks, vision["intermediate_size"] % ranks) == (0, 0), vision
    assert vision["hidden_size"] // vision["num_attention_heads"] == 32


def test_one_checkpoint_is_for_one_rank_and_two() -> None:
    assert deepseek_v2.config(1) == deepseek_v2.config(2) == deepseek_v2.CONFIG
    assert kimi_k25.config(1) == kimi_k25.config(2)


def test_replies_have_the_same_shapes_at_any_size() -> None:
    for config in (deepseek_v2.config(8), kimi_k25.config(8)["text_config"]):
        for name in ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"):
            assert config[name] == deepseek_v2.CONFIG[name], name


@pytest.mark.parametrize("ranks", [3, 6, 128])
@pytest.mark.parametrize("config", [deepseek_v2.config, kimi_k25.config])
def test_size_that_nothing_divides_among_is_refused(config: Any, ranks: int) -> None:
    with pytest.raises(UsageError, match=rf"do not divide among {ranks} ranks: take a power of two, up to 64"):
        config(ranks)


def test_suite_writes_checkpoints_for_its_largest_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def write(folder: Path, *, seed: int = 0, dtype: str = "float32", ranks: int = 2) -> Path:
        del seed, dtype
        written.append(ranks)
        return folder

    monkeypatch.setattr(models, "WRITERS", dict.fromkeys(settings.MODEL_KINDS, write))
    groups = settings.chosen(["executor"], ["mp-tp2", "tight-tp8"])
    facts = {"release": None, "version": "0", "distribution": "vllm"}
    check.prepare(tmp_path, facts, flow.options(tmp_path), groups)
    assert written == [8]
