"""A tiny KimiK25: the multimodal wrapper around a DeepSeek V3 stack, as Kimi-K2.5 is published.

The stack has the sizes of `deepseek_v2` (so that replies have the same shapes), and what V3 adds: low-rank queries,
sigmoid scores, and the correction bias of ``noaux_tc``. The vision tower is one real, random layer; nothing goes
through it, as prompts are text. vLLM asks for the tokenizer and the media processor all the same, while it boots, to
find out how many tokens an image takes; as in the published checkpoint, the processor is a file of the checkpoint,
which vLLM imports only with ``trust_remote_code``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import deepseek_v2, tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    import torch

# The prompts of the suite leave 0 and 1 out (harness/prompts.py).
MEDIA_TOKEN = 1

_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "q_lora_rank": 32,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "eos_token_id": 0,
}

_VISION: dict[str, Any] = {
    "patch_size": 14,
    # Up to 0.31.0 under vLLM's own names, since 0.32.0 under those of transformers.
    **{f"{prefix}pos_emb_{side}": 4 for prefix in ("init_", "") for side in ("height", "width", "time")},
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "merge_kernel_size": [2, 2],
    "mm_hidden_size": deepseek_v2.HIDDEN_SIZE,
}
_VISION_HEAD = 32

_WRAPPER: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "media_placeholder_token_id": MEDIA_TOKEN,
    "image_token_id": MEDIA_TOKEN,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}


def config(ranks: int = 2, dtype: str = "float32") -> dict[str, Any]:
    """The config of a checkpoint that divides among so many ranks, and among two.

    Raises:
        UsageError: none does.
    """
    text = {**deepseek_v2.config(ranks), **_V3, "torch_dtype": dtype}
    heads = text["num_attention_heads"]
    vision = {**_VISION, "num_attention_heads": heads, "hidden_size": _VISION_HEAD * heads}
    return {**_WRAPPER, "text_config": text, "vision_config": vision, "torch_dtype": dtype}


_PROCESSOR = '''\
from transformers.image_processing_utils import BaseImageProcessor


class MediaProcessor(BaseImageProcessor):
    """Says that every image takes one token; none is ever processed."""

    num_frames_per_chunk = 4

    def media_tokens_calculator(self, media):
        return 1

    def preprocess(self, medias, **_kwargs):
        import torch
        from transformers.image_processing_utils import BatchFeature

        grid = torch.tensor([[1, 2, 2]] * len(medias))
        return BatchFeature(data={"pixel_values": torch.zeros(4 * len(medias), 3, 14, 14), "grid_thws": grid})
'''

_PREPROCESSOR_CONFIG: dict[str, Any] = {
    "auto_map": {"AutoImageProcessor": "media_processor.MediaProcessor"},
    "image_processor_type": "MediaProcessor",
    # Since 0.25.1 vLLM has a processor of its own, which reads this (transformers_utils/processors).
    "media_proc_cfg": {
        "patch_size": 14,
        "merge_kernel_size": 2,
        "temporal_merge_kernel_size": 4,
        "in_patch_limit": 4,
        "in_patch_limit_each_frame": 4,
        "in_patch_limit_video": 16,
        "patch_limit_on_one_side": 2,
        "fixed_output_tokens": None,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
}


def _vision_weights(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Random float32 weights of the vision tower and of the projector into the text model."""
    import torch  # Here, as in deepseek_v2.

    generator = torch.Generator().manual_seed(seed)
    width, inner = config["hidden_size"], config["intermediate_size"]
    merged = 4 * width
    made: dict[str, torch.Tensor] = {}

    def add(name: str, *shape: int) -> None:
        made[f"{name}.weight"] = 0.1 * torch.randn(*shape, generator=generator)
        made[f"{name}.bias"] = 0.1 * torch.randn(shape[0], generator=generator)

    add("vision_tower.patch_embed.proj", width, 3, 14, 14)
    made["vision_tower.patch_embed.pos_emb.weight"] = torch.randn(4, 4, width, generator=generator)
    block = "vision_tower.encoder.blocks.0"
    add(f"{block}.norm0", width)
    add(f"{block}.norm1", width)
    add(f"{block}.wqkv", 3 * width, width)
    add(f"{block}.wo", width, width)
    add(f"{block}.mlp.fc0", inner, width)
    add(f"{block}.mlp.fc1", width, inner)
    add("vision_tower.encoder.final_layernorm", width)
    add("mm_projector.pre_norm", width)
    add("mm_projector.proj.0", merged, merged)
    add("mm_projector.proj.2", config["mm_hidden_size"], merged)
    return made


def write(folder: Path, *, seed: int = 0, dtype: str = "float32", ranks: int = 2) -> Path:
    """Write the checkpoint into a folder: weights (2M parameters for two ranks), configs, tokenizer, media processor.

    Raises:
        UsageError: as `config`.
    """
    from safetensors.torch import save_file

    made = config(ranks, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", made),
        ("preprocessor_config.json", _PREPROCESSOR_CONFIG),
    ):
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    eos = _V3["eos_token_id"]
    tokenizer.write(
        folder,
        vocab_size=deepseek_v2.VOCAB_SIZE,
        special={eos: "[EOS]", MEDIA_TOKEN: "<|media_pad|>"},
        roles={"eos_token": eos, "pad_token": eos, "unk_token": eos},
    )
    (folder / "media_processor.py").write_text(_PROCESSOR, encoding="utf-8")
    text = deepseek_v2.weights(made["text_config"], seed)
    weights = {f"language_model.{name}": tensor for name, tensor in text.items()}
    weights |= _vision_weights(made["vision_config"], seed)
    save_file(deepseek_v2.cast(weights, dtype), str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder
