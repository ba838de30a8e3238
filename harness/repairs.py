"""Extensions that go past a fault of one build; ``releases.toml`` says which build and why.

Unlike `worker`, this module imports vllm: it is imported in worker processes of the builds that name it.
"""

from __future__ import annotations

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.fused_moe.cpu_fused_moe import _CPU_MOE_ACT

from .extraction.extension import ExtractExtension
from .worker import CaptureExtension

# 0.14.1, model_executor/layers/fused_moe/cpu_fused_moe.py: the activation is made when it is first asked for,
# in a forward, and making it needs a current config.
with set_current_vllm_config(VllmConfig()):
    _CPU_MOE_ACT["silu"]


class EarlyActivationExtension(CaptureExtension):
    """`CaptureExtension`, imported after the MoE activation has been made."""


class EarlyActivationExtractExtension(ExtractExtension):
    """The same of `ExtractExtension`; `clients.extract` finds it by its name."""
