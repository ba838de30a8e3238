"""The two models that extraction is measured on, and how much is asked of them: one for CPUs, one for GPUs."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from harness.models import deepseek_v2

if TYPE_CHECKING:
    from pathlib import Path

Device: TypeAlias = Literal["cpu", "cuda"]

_POSITIONS = 4096
# The attention of Kimi-K2 at its width; few and small experts, so that prefill is as fast as it gets at this width,
# and delivery is what is measured. No tokenizer, and no weights: vLLM makes them up (load_format dummy).
WIDE: dict[str, Any] = {
    **deepseek_v2.CONFIG,
    "vocab_size": 8192,
    "hidden_size": 7168,
    "intermediate_size": 4096,
    "moe_intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 8,
    "max_position_embeddings": _POSITIONS,
    "rope_scaling": {**deepseek_v2.CONFIG["rope_scaling"], "original_max_position_embeddings": _POSITIONS},
    "torch_dtype": "bfloat16",
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model, and what is asked of it.

    ``layers`` are outputs of decoder layers. The last is not among them: up to 0.24.0 vLLM's own extraction loses
    DeepseekV2's (`harness.clients.extraction.refusals`).
    ``prompts`` and ``tokens`` are what a round has if nothing else is said; ``budget`` is ``max_num_batched_tokens``.
    ``parts``: ways that get so large a part of a round's prompts only, the first ones: a quarter where it says 4.
    """

    config: dict[str, Any]
    layers: tuple[int, ...]
    dtype: str
    prompts: int
    tokens: int
    budget: int
    arguments: dict[str, Any]
    parts: dict[str, int]

    @property
    def hidden_size(self) -> int:
        size: int = self.config["hidden_size"]
        return size

    @property
    def row_bytes(self) -> int:
        """What one token's captured states take."""
        return len(self.layers) * self.hidden_size * {"float32": 4, "bfloat16": 2}[self.dtype]

    def write(self, folder: Path, ranks: int) -> None:
        """Write what vLLM opens: for the wide model, a config alone.

        Raises:
            UsageError: the tiny model does not divide among so many ranks.
        """
        if self.config is deepseek_v2.CONFIG:
            deepseek_v2.write(folder, ranks=ranks)
        else:
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(self.config, indent=1), encoding="utf-8")

    def random_prompts(self, count: int, tokens: int) -> list[list[int]]:
        """The same for every way and in every run."""
        chosen = random.Random(0)  # noqa: S311 - prompts are no secret.
        return [[chosen.randrange(2, self.config["vocab_size"]) for _ in range(tokens)] for _ in range(count)]


SHAPES: dict[Device, Shape] = {
    "cpu": Shape(
        config=deepseek_v2.CONFIG,
        layers=(0, 1, 2, 3),
        dtype="float32",
        prompts=64,
        tokens=256,
        budget=2048,
        arguments={},
        parts={},
    ),
    "cuda": Shape(
        config=WIDE,
        layers=(0, 2, 4, 6),
        dtype="bfloat16",
        # Some four seconds of prefill: what is still to be written when it ends is then a small part of a round.
        prompts=1024,
        tokens=512,
        budget=8192,
        # Engines share the GPU and boot at the same time: a fixed cache, as profiling would count the others in.
        arguments={"load_format": "dummy", "gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 4 * 2**30},
        parts={"reply": 16, "connector": 8, "extract-writers-1": 8},
    ),
}
