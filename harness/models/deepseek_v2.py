"""A tiny DeepseekV2 whose dimensions run on every pinned CPU release, and on GPUs.

The dimensions of a head are the published ones, as attention backends take few others: of MLA only kv_lora_rank 512
with qk_rope_head_dim 64 (head size 576), and its prefill on a Hopper GPU only 128 and 64 against 128, and two more
(0.26.0, v1/attention/backends/mla/prefill/flash_attn.py; up to 0.20.2 FlashAttention 3 itself refuses others).
The CPU kernel for grouped experts wants twice a rank's moe_intermediate_size to be a multiple of 64, so it is 64
for TP=2 (0.17.1, vllm/model_executor/layers/fused_moe/cpu_fused_moe.py only checks 32). For more ranks, `config` has
more of what they share. Rotary scaling is set, as in
every published DeepSeek and Kimi checkpoint: without it, vLLM's CPU rotary kernel is wrong at every position but the
first (seen on 0.12.0 to 0.21.0).

Which experts a token gets is settled by construction: with random gates, the second and third best are so close for
some tokens that rounding chooses between them, and the states are then wholly others. The last dimensions, one an
expert, are for routing alone: the embedding fills them with an order of the experts that the token id chooses, no
layer writes to them, and only gates that read nothing else look for experts there.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

from . import tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    import torch

NUM_LAYERS = 5
HIDDEN_SIZE = 64
VOCAB_SIZE = 128
MAX_MODEL_LEN = 512
# Of heads, as vLLM gives every rank as many; and of the vocabulary, which every rank has a part of.
MOST_RANKS = 64
_INNER_OF_A_RANK = 32

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 64,
    "moe_intermediate_size": 64,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "hidden_act": "silu",
    "max_position_embeddings": MAX_MODEL_LEN,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "yarn",
        "rope_type": "yarn",
        "factor": 1.0,
        "original_max_position_embeddings": MAX_MODEL_LEN,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "float32",
    "use_cache": True,
}


def config(ranks: int = 2) -> dict[str, Any]:
    """The config of a checkpoint that divides among so many ranks, and among two.

    Raises:
        UsageError: none does.
    """
    if ranks > MOST_RANKS or ranks & (ranks - 1):
        raise UsageError(
            f"the tiny checkpoints do not divide among {ranks} ranks: take a power of two, up to {MOST_RANKS}."
        )
    heads = max(ranks, CONFIG["num_attention_heads"])
    return {
        **CONFIG,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "intermediate_size": _INNER_OF_A_RANK * heads,
        "moe_intermediate_size": _INNER_OF_A_RANK * heads,
    }


def _orders(vocabulary: int, experts: int) -> torch.Tensor:
    """``[vocabulary, experts]``: how much each token wants each expert, evenly spaced, every order in turn."""
    import torch  # Here, as the cases read the sizes above where there is none.

    steps = [number - (experts - 1) / 2 for number in range(experts)]
    orders = list(itertools.permutations(steps))
    return torch.tensor([orders[token % len(orders)] for token in range(vocabulary)])


def weights(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Float32 weights of a DeepSeek stack, V2 or V3, under the names of a published checkpoint: random but for the
    routing.
    """
    import torch  # As above.

    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * (columns**-0.5)

    def norm(size: int) -> torch.Tensor:
        return 1.0 + 0.1 * torch.randn(size, generator=generator)

    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    rank, q_rank = config["kv_lora_rank"], config["q_lora_rank"]
    experts = config["n_routed_experts"]
    made = {"model.embed_tokens.weight": torch.randn(config["vocab_size"], hidden, generator=generator)}
    made["model.embed_tokens.weight"][:, -experts:] = _orders(config["vocab_size"], experts)

    def written(inner: int) -> torch.Tensor:
        """What a layer adds to the residual stream: nothing where the routing is kept."""
        made = matrix(hidden, inner)
        made[-experts:] = 0.0
        return made

    def mlp(prefix: str, inner: int) -> None:
        made[f"{prefix}.gate_proj.weight"] = matrix(inner, hidden)
        made[f"{prefix}.up_proj.weight"] = matrix(inner, hidden)
        made[f"{prefix}.down_proj.weight"] = written(inner)

    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        made[f"{prefix}.input_layernorm.weight"] = norm(hidden)
        made[f"{prefix}.post_attention_layernorm.weight"] = norm(hidden)
        attention = f"{prefix}.self_attn"
        if q_rank is None:
            made[f"{attention}.q_proj.weight"] = matrix(heads * (nope + rope), hidden)
        else:
            made[f"{attention}.q_a_proj.weight"] = matrix(q_rank, hidden)
            made[f"{attention}.q_a_layernorm.weight"] = norm(q_rank)
            made[f"{attention}.q_b_proj.weight"] = matrix(heads * (nope + rope), q_rank)
        made[f"{attention}.kv_a_proj_with_mqa.weight"] = matrix(rank + rope, hidden)
        made[f"{attention}.kv_a_layernorm.weight"] = norm(rank)
        made[f"{attention}.kv_b_proj.weight"] = matrix(heads * (nope + value), rank)
        made[f"{attention}.o_proj.weight"] = written(heads * value)
        if layer < config["first_k_dense_replace"]:
            mlp(f"{prefix}.mlp", config["intermediate_size"])
            continue
        made[f"{prefix}.post_attention_layernorm.weight"][-experts:] = 1.0
        # Another expert for the same wish in every layer. The factor makes up for the norm's divisor, which grows.
        wishes = torch.roll(torch.eye(experts), layer, dims=0) * (1.5 + layer / 2)
        made[f"{prefix}.mlp.gate.weight"] = torch.cat([torch.zeros(experts, hidden - experts), wishes], dim=1)
        if config["topk_method"] == "noaux_tc":
            # Lifts one expert above all others: who leaves the bias out chooses another one for half of the tokens.
            made[f"{prefix}.mlp.gate.e_score_correction_bias"] = torch.eye(experts)[layer % experts]
        for expert in range(experts):
            mlp(f"{prefix}.mlp.experts.{expert}", config["moe_intermediate_size"])
        mlp(f"{prefix}.mlp.shared_experts", config["moe_intermediate_size"] * config["n_shared_experts"])
    made["model.norm.weight"] = norm(hidden)
    made["lm_head.weight"] = matrix(config["vocab_size"], hidden)
    return made


def cast(made: dict[str, torch.Tensor], dtype: str) -> dict[str, torch.Tensor]:
    """Weights in the dtype in which the engine computes: rounded here, they are the reference's too."""
    import torch  # As above.

    return {name: tensor.to(getattr(torch, dtype)) for name, tensor in made.items()}


def write(folder: Path, *, seed: int = 0, dtype: str = "float32", ranks: int = 2) -> Path:
    """Write config, tokenizer and ``model.safetensors`` into a folder: 2M parameters for two ranks, 7M for eight.

    Raises:
        UsageError: as `config`.
    """
    from safetensors.torch import save_file

    made = {**config(ranks), "torch_dtype": dtype}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(made, indent=2), encoding="utf-8")
    bos, eos = CONFIG["bos_token_id"], CONFIG["eos_token_id"]
    tokenizer.write(
        folder,
        vocab_size=VOCAB_SIZE,
        special={bos: f"<{bos}>", eos: f"<{eos}>"},
        roles={"bos_token": bos, "eos_token": eos, "unk_token": bos},
    )
    save_file(cast(weights(made, seed), dtype), str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder
