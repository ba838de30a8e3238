"""The ways to hidden states that are measured side by side, as data, and the engine that each opens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.clients.contract import EngineSpec
from harness.clients.extraction import arguments
from harness.extraction.jobs import Tuning

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .shapes import Device, Shape


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way.

    ``engine`` is a client in `engines`, and ways of the same one share it; ``how`` is what its ``deliver`` is called
    with. ``through_llm`` is an engine as ``vllm.LLM`` makes it by itself, with an EngineCore process. ``connector``
    has it extract. ``writes`` is whether files are looked for, ``keeps`` whether they stay for the next round.
    """

    name: str
    title: str
    engine: str
    through_llm: bool = False
    connector: bool = False
    writes: bool = False
    keeps: bool = False
    how: Mapping[str, Any] = field(default_factory=dict)
    extension: str = "harness.worker.CaptureExtension"


def _ours(name: str, title: str, *, writes: bool = True, keeps: bool = False, **how: Any) -> Way:
    return Way(
        name=name,
        title=title,
        engine="EXTRACT",
        writes=writes,
        keeps=keeps,
        how=how,
        extension="bench.studied.StudiedExtension",
    )


WAYS = (
    Way(name="plain", title="plain prefill, executor", engine="PLAIN"),
    Way(name="plain-llm", title="plain prefill, LLM.generate", engine="PLAIN_LLM", through_llm=True),
    Way(
        name="reply",
        title="clones, collective_rpc reply",
        engine="REPLY",
        extension="bench.cloning.CloningExtension",
    ),
    Way(
        name="connector",
        title="vLLM's example connector",
        engine="CONNECTOR",
        through_llm=True,
        connector=True,
        writes=True,
    ),
    _ours("extract", "ours"),
    *(
        _ours(f"extract-writers-{count}", f"ours, writers: {count}", tuning=Tuning(writers=count))
        for count in (1, 4, 8)
    ),
    _ours("extract-overwritten", "ours, over old files", keeps=True, study="overwritten"),
    _ours("extract-dropped", "ours, copied and dropped", writes=False, study="dropped"),
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

    def round_prompts(self, way: Way) -> int:
        """How many of the prompts a way gets, the first ones."""
        return max(1, self.prompts // self.shape.parts.get(way.name, 1))

    def round_tokens(self, way: Way) -> int:
        return self.round_prompts(way) * self.tokens

    def spec(self, way: Way, model: Path, folder: Path) -> EngineSpec:
        """The engine of a way that delivers into ``folder``."""
        own: dict[str, Any] = {}
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
            # Twice what a step takes: while the next one is under way, requests that are done keep their slots.
            max_num_seqs=max(16, 2 * self.shape.budget // self.tokens),
            enable_chunked_prefill=True,
            async_scheduling=None,
            extension=way.extension,
            extra_arguments={**self.shape.arguments, **own},
            timeout=self.timeout,
        )
