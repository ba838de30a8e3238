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


def layer_states(checkpoint: Path, prompts: list[list[int]]) -> list[list[torch.Tensor]]:
    """The residual stream after each decoder layer.

    Hooks on the decoder layers, not ``output_hidden_states``: that one's last entry is after the final norm.

    Returns:
        For each prompt, a float32 tensor ``[n, hidden_size]`` a layer.
    """
    from transformers import AutoModelForCausalLM

    # The eager path: one matrix product after another, nothing fused that a kernel could get wrong.
    model: Any = AutoModelForCausalLM.from_pretrained(
        checkpoint, torch_dtype=torch.float32, attn_implementation="eager"
    ).eval()
    seen: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        # A tuple up to transformers 4.x, a tensor since 5.
        seen.append((output[0] if isinstance(output, tuple) else output)[0].clone())

    for layer in model.model.layers:
        layer.register_forward_hook(keep)
    states = []
    with torch.inference_mode():
        for prompt in prompts:
            seen.clear()
            model(input_ids=torch.tensor([prompt]), use_cache=False)
            states.append(list(seen))
    return states


def main(arguments: list[str]) -> None:
    prompts, *pairs = map(Path, arguments)
    for checkpoint, out in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            _write(checkpoint, prompts, out)
        except Exception:  # noqa: BLE001 - told to whoever waits for the file; the next one may still succeed.
            out.with_suffix(".failed").write_text(traceback.format_exc(), encoding="utf-8")


def _write(checkpoint: Path, prompts: Path, out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        states = layer_states(
            text_checkpoint(checkpoint, Path(folder)), json.loads(prompts.read_text(encoding="utf-8"))
        )
    partial = out.with_suffix(".partial")
    save_file(
        {
            f"{prompt}.{layer}": rows.contiguous()
            for prompt, layers in enumerate(states)
            for layer, rows in enumerate(layers)
        },
        str(partial),
    )
    os.replace(partial, out)  # noqa: PTH105 - readers wait for this name to appear.


if __name__ == "__main__":
    main(sys.argv[1:])
