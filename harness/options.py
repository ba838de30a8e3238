"""What a run of the suite is asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from . import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .releases import Device
    from .settings import ModelKind

Dtype: TypeAlias = Literal["float32", "bfloat16"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
# On GPUs what real runs compute in: vLLM's MLA backends take no float32 there (v1/attention/backends/mla, 0.20.2),
# and without MLA its Triton kernels round float32 to TF32. On the CPU, where kernels take it, what hides least.
DEFAULT_DTYPES: Mapping[Device, Dtype] = {"cpu": "float32", "cuda": "bfloat16"}


def model_runner() -> str:
    """The model runner that the user has chosen, ``v1`` or ``v2``; empty if vLLM is to choose.

    0.26.0 takes V2 for DeepseekV2 and V1 for KimiK25 (config/vllm.py, `use_v2_model_runner`), 0.20.2 V1 for both.
    """
    return {"0": "v1", "1": "v2"}.get(os.environ.get("VLLM_USE_V2_MODEL_RUNNER", ""), "")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line of ``harness check`` says."""

    clients: tuple[str, ...]
    device: Device
    tensor_parallel_sizes: tuple[int, ...]
    model_kind: ModelKind | None
    keyword: str
    evidence: Path | None
    update_snapshots: bool
    jobs: int | None
    as_json: bool
    snapshots_of: str | None = None
    settings: tuple[str, ...] = ()
    """Only these, by the names of `settings.named`; those that the suite has if there are none."""
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """As `Run.only`."""
    dtype: Dtype = "float32"
    model_runner: str = ""
    pipeline_parallel_size: int = 1
    executor_backend: Literal["ray"] | None = None

    def results(self, release: str) -> str:
        """The name of the folder for the results of a release."""
        dtype = "" if self.dtype == DEFAULT_DTYPES[self.device] else self.dtype
        return "-".join(filter(None, [release, self.device, dtype, self.model_runner]))

    def snapshots(self, release: str) -> str:
        """The name of the folder of the snapshots that a release is held to: GPUs have their own, and each runner."""
        device = "" if self.device == "cpu" else self.device
        return "-".join(filter(None, [self.snapshots_of or release, device, self.model_runner]))

    @property
    def on_request(self) -> bool:
        """Whether engines are asked for that the suite opens only on request."""
        return self.pipeline_parallel_size > 1 or self.executor_backend is not None

    @property
    def own_engines(self) -> bool:
        """Whether the engines, or what they are held to, are others than the suite has for this vLLM."""
        return bool(self.clients or self._other_engines)

    @property
    def narrowed(self) -> bool:
        """Whether it is another run than the whole one of its clients."""
        return bool(self._other_engines or self.only or self.keyword)

    @property
    def whole(self) -> bool:
        """Whether nothing is left out that the suite has for this vLLM."""
        return not (self.clients or self.narrowed)

    @property
    def _other_engines(self) -> bool:
        asked = self.tensor_parallel_sizes or self.settings or self.model_kind or self.on_request
        return bool(asked or self.snapshots_of)

    def say(self, line: str) -> None:
        """Tell how the run goes on: beside the evidence, where that is printed."""
        terminal.say(line, as_json=self.as_json)
