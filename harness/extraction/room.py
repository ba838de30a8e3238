"""What a rank takes of its device beside what vLLM takes, and what to do where that is not there.

This module is imported by worker processes: the standard library only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .layouts import Form

# What hooks fill, and what is copied from.
STAGINGS = 2


def staged_bytes(form: Form, tokens: int) -> int:
    """The tensors of states and flags, for forwards of so many tokens, which `staging` allocates."""
    return tokens * (STAGINGS * form.row_bytes + form.layers)


def refusal(form: Form, tokens: int, *, free: int, total: int, utilization: float) -> str:
    """What to do where they were not to be had.

    vLLM takes its share of a device when it makes the KV cache, after a profile run that these tensors are no part of
    (`determine_available_memory`, v1/worker/gpu_worker.py, 0.11.0 to 0.32.0).

    Args:
        form: of the rows.
        tokens: of a forward, at most.
        free: bytes of the device.
        total: bytes of the device.
        utilization: vLLM's ``gpu_memory_utilization``, its share of ``total``.
    """
    needed = staged_bytes(form, tokens)
    less = math.ceil(max(needed - free, 0) / total * 100) / 100 + 0.01
    return (
        f"states of {STAGINGS} forwards of {tokens} tokens, {form.layers} layers and width {form.hidden_size} take "
        f"{needed:,} bytes of each GPU, and vLLM has left {free:,}. Lower gpu_memory_utilization, which is "
        f"{utilization:g}, by {less:.2f} or more with --engine-argument, or lower --max-num-batched-tokens, or take "
        f"fewer layers."
    )
