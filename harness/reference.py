"""The Hugging Face float32 forward of a checkpoint: what every captured state is compared with.

Run as a program (``python -m harness.reference CHECKPOINT PROMPTS.json OUT.safetensors``) so that it can
go on beside the first engine's boot, in a process that never imports vLLM.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file


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
    checkpoint, prompts, out = map(Path, arguments)
    try:
        _write(checkpoint, prompts, out)
    except BaseException:
        out.with_suffix(".failed").write_text(traceback.format_exc(), encoding="utf-8")
        raise


def _write(checkpoint: Path, prompts: Path, out: Path) -> None:
    sets: dict[str, list[list[int]]] = json.loads(prompts.read_text(encoding="utf-8"))
    names = [f"{name}.{number}" for name, members in sets.items() for number in range(len(members))]
    states = layer_states(checkpoint, [prompt for members in sets.values() for prompt in members])
    partial = out.with_suffix(".partial")
    save_file(
        {
            f"{name}.{layer}": rows.contiguous()
            for name, layers in zip(names, states, strict=True)
            for layer, rows in enumerate(layers)
        },
        str(partial),
    )
    os.replace(partial, out)  # noqa: PTH105 - readers wait for this name to appear.


if __name__ == "__main__":
    main(sys.argv[1:])
