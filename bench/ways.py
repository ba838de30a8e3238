"""The ways to hidden states that are measured side by side, as data, and the engine that each opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.clients.contract import EngineSpec
from harness.clients.extraction import arguments

if TYPE_CHECKING:
    from pathlib import Path

    from .shapes import Device, Shape


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way.

    ``client`` is what `harness.host` opens. ``through_llm`` is an engine as ``vllm.LLM`` makes it by itself: with an
    EngineCore process, and asynchronous scheduling where vLLM takes it. ``connector`` has it extract. ``writes`` is
    whether files are looked for.
    """

    name: str
    title: str
    client: str
    through_llm: bool = False
    connector: bool = False
    writes: bool = False
    extension: str = "harness.worker.CaptureExtension"


WAYS = (
    Way(name="plain", title="plain prefill, executor", client="bench.engines:PLAIN"),
    Way(name="plain-llm", title="plain prefill, LLM.generate", client="bench.engines:PLAIN_LLM", through_llm=True),
    Way(
        name="reply",
        title="clones, collective_rpc reply",
        client="bench.engines:REPLY",
        extension="bench.cloning.CloningExtension",
    ),
    Way(
        name="connector",
        title="vLLM's example connector",
        client="bench.engines:CONNECTOR",
        through_llm=True,
        connector=True,
        writes=True,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every way is given, and the machine's part in it."""

    device: Device
    shape: Shape
    tensor_parallel_size: int
    prompts: int
    tokens: int
    timeout: float

    @property
    def round_tokens(self) -> int:
        return self.prompts * self.tokens

    def spec(self, way: Way, model: Path, folder: Path) -> EngineSpec:
        """The engine of a way that delivers into ``folder``."""
        own: dict[str, Any] = {}
        if way.through_llm:
            own["async_scheduling"] = None
        if way.connector:
            own |= arguments.engine_arguments(self.shape.layers, folder, self.device)
        return EngineSpec(
            model=str(model),
            layers=self.shape.layers,
            tensor_parallel_size=self.tensor_parallel_size,
            executor_backend="uni" if way.through_llm and self.tensor_parallel_size == 1 else "mp",
            engine_core_process=way.through_llm,
            device=self.device,
            dtype=self.shape.dtype,
            max_model_len=self.tokens + 1,
            max_num_batched_tokens=self.shape.budget,
            # Twice what a step takes: with asynchronous scheduling, finished requests keep their slots for one more.
            max_num_seqs=max(16, 2 * self.shape.budget // self.tokens),
            extension=way.extension,
            extra_arguments={**self.shape.arguments, **own},
            timeout=self.timeout,
        )
