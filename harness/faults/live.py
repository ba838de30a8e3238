"""Live faults: our executor client broken on the vLLM installed here; each public name is in the catalogue."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.clients.contract import EngineSpec, Sample, check_spec
from harness.clients.executor import ExecutorClient, ExecutorEngine
from harness.engine_arguments import set_variables

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class _WithExtension(ExecutorClient):
    """Our client, with another extension in its workers."""

    extension: str

    def open(self, spec: EngineSpec) -> ExecutorEngine:
        return super().open(replace(spec, extension=f"harness.faults.extensions.{self.extension}"))


residual_not_added = _WithExtension("NoResidual")
inputs_taken_for_outputs = _WithExtension("InputsForOutputs")
states_kept_without_a_copy = _WithExtension("NoCopy")
patch_in_the_parent_only = _WithExtension("NoHooks")
worker_raises = _WithExtension("Raises")
worker_hangs = _WithExtension("Hangs")
worker_leaves_a_process = _WithExtension("LeavesAProcess")
worker_leaves_a_segment = _WithExtension("LeavesASegment")


class _BareReplyIndexed(ExecutorEngine):
    """Takes [0] of one rank's reply, as code written for 0.11.0 does."""

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        given = []
        for prompt in prompts:
            super().capture([prompt])
            tensors = self.rpc("harness_tensors", unique_reply_rank=0)[0]
            given.append(Sample(token_ids=list(prompt), states=dict(enumerate(tensors))))
        return given


class _Hangs(ExecutorEngine):
    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        time.sleep(600.0)
        return []


@dataclass(frozen=True)
class _WithEngine(ExecutorClient):
    """Our client, with another engine on the same adapter."""

    engine: type[ExecutorEngine]
    forgetful: bool = False

    def open(self, spec: EngineSpec) -> ExecutorEngine:
        from harness import adapters

        check_spec(spec)
        set_variables(spec)
        kind: Any = adapters.select()
        adapter = (_forgetful(kind) if self.forgetful else kind)(spec)
        adapter.boot()
        return self.engine(spec, adapter)


def _forgetful(kind: Any) -> Any:
    class Forgetful(kind):  # type: ignore[misc]
        """Knows execute_model only, and takes None for nothing to account for."""

        def step(self) -> int:
            scheduled = self.scheduler.schedule()
            output = self.executor.execute_model(scheduled)
            if output is not None:
                self.scheduler.update_from_output(scheduled, output)
            return int(scheduled.total_num_scheduled_tokens)

    return Forgetful


bare_reply_indexed = _WithEngine(_BareReplyIndexed)
client_hangs = _WithEngine(_Hangs)
sample_tokens_forgotten = _WithEngine(ExecutorEngine, forgetful=True)
