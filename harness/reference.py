"""The Hugging Face float32 forward of a checkpoint: what every captured state is compared with.

Run as a program (``python -m harness.reference PROMPTS.json [CHECKPOINT OUT.safetensors]...``) so that it can
go on beside the first engine's boot, in a process that never imports vLLM.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


def text_checkpoint(checkpoint: Path, folder: Path) -> Path:
    """The text model of a multimodal checkpoint as one of its own, in ``folder``; any other checkpoint as it is.

    Kimi calls its stack ``kimi_k2``, which is DeepSeek V3 under another name: transformers only has the latter.
    """
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    if "text_config" not in config:
        return checkpoint
    prefix = "language_model."
    weights = load_file(str(checkpoint / "model.safetensors"))
    text = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    save_file(text, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {**config["text_config"], "model_type": "deepseek_v3"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def layer_states(checkpoint: Path, prompts: list[list[int]]) -> list[dict[str, torch.Tensor]]:
    """The residual stream after each decoder layer, and what else a capture may take for it.

    Hooks on the decoder layers, not ``output_hidden_states``: that one's last entry is after the final norm.

    Returns:
        For each prompt, float32 tensors ``[n, hidden_size]``: under ``<layer>`` its states, and under
        ``<layer>.<part>`` those of `recognition.PARTS`; and under ``<layer>.routing``, ``[n, experts]``, the scores
        by which a layer chooses its experts.
    """
    from transformers import AutoModelForCausalLM

    # The eager path: one matrix product after another, nothing fused that a kernel could get wrong.
    model: Any = AutoModelForCausalLM.from_pretrained(
        checkpoint, torch_dtype=torch.float32, attn_implementation="eager"
    ).eval()
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str, *, inputs: bool = False) -> Any:
        def hook(_module: Any, given: Any, output: Any) -> None:
            states = given if inputs else output
            # A tuple up to transformers 4.x, a tensor since 5.
            seen[name] = (states[0] if isinstance(states, tuple) else states)[0].clone()

        return hook

    def keep_routing(name: str, gate: Any) -> Any:
        def hook(_mlp: Any, given: Any, _output: Any) -> None:
            scores = given[0].flatten(0, -2) @ gate.weight.T
            bias = getattr(gate, "e_score_correction_bias", None)  # DeepSeek V3's.
            seen[name] = scores if bias is None else scores.sigmoid() + bias

        return hook

    layers = model.model.layers
    norms = [*(layer.input_layernorm for layer in layers[1:]), model.model.norm]
    for number, (layer, norm) in enumerate(zip(layers, norms, strict=True)):
        layer.register_forward_hook(keep(f"{number}"))
        layer.mlp.register_forward_hook(keep(f"{number}.mlp"))
        layer.post_attention_layernorm.register_forward_hook(keep(f"{number}.attention", inputs=True))
        norm.register_forward_hook(keep(f"{number}.norm"))
        if hasattr(layer.mlp, "gate"):
            # Not on the gate: DeepseekV2 reads its weight and never calls it in transformers 5.5 to 5.12.
            layer.mlp.register_forward_hook(keep_routing(f"{number}.routing", layer.mlp.gate))
    states = []
    with torch.inference_mode():
        for prompt in prompts:
            seen.clear()
            model(input_ids=torch.tensor([prompt]), use_cache=False)
            states.append(dict(seen))
    return states


def main(arguments: list[str]) -> None:
    prompts, *pairs = map(Path, arguments)
    for checkpoint, out in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            _write(checkpoint, prompts, out)
        except Exception:  # noqa: BLE001 - told to whoever waits for the file; the next one may still succeed.
            out.with_suffix(".failed").write_text(traceback.format_exc(), encoding="utf-8")


def _write(checkpoint: Path, prompts: Path, out: Path) -> None:
    sets: dict[str, list[list[int]]] = json.loads(prompts.read_text(encoding="utf-8"))
    names = [f"{name}.{number}" for name, members in sets.items() for number in range(len(members))]
    with tempfile.TemporaryDirectory() as folder:
        states = layer_states(
            text_checkpoint(checkpoint, Path(folder)), [prompt for members in sets.values() for prompt in members]
        )
    partial = out.with_suffix(".partial")
    save_file(
        {
            f"{name}.{part}": rows.contiguous()
            for name, parts in zip(names, states, strict=True)
            for part, rows in parts.items()
        },
        str(partial),
    )
    os.replace(partial, out)  # noqa: PTH105 - readers wait for this name to appear.


if __name__ == "__main__":
    main(sys.argv[1:])
