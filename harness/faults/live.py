"""Live faults: our clients broken on the vLLM installed here; each public name is a client in the catalogue."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.clients.calls import Calls
from harness.clients.contract import EngineSpec, Sample, check_spec
from harness.clients.executor import ExecutorClient, ExecutorEngine
from harness.clients.llm import LLMClient, LLMEngine
from harness.engine_arguments import set_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _as_it_is(kind: Any) -> Any:
    return kind


@dataclass(frozen=True)
class _Broken(ExecutorClient):
    """Our client, with another extension in its workers, another engine, or a change to its adapter's class."""

    extension: str = ""
    engine: type[ExecutorEngine] = ExecutorEngine
    adapted: Callable[[Any], Any] = _as_it_is

    def open(self, spec: EngineSpec) -> ExecutorEngine:
        from harness import adapters

        if self.extension:
            spec = replace(spec, extension=f"harness.faults.extensions.{self.extension}")
        check_spec(spec)
        set_variables(spec)
        adapter = self.adapted(adapters.select())(spec)
        adapter.boot()
        return self.engine(spec, adapter)


residual_not_added = _Broken("NoResidual")
inputs_taken_for_outputs = _Broken("InputsForOutputs")
states_kept_without_a_copy = _Broken("NoCopy")
patch_in_the_parent_only = _Broken("NoHooks")
worker_raises = _Broken("Raises")
worker_hangs = _Broken("Hangs")
worker_says_nothing = _Broken("Silent")
worker_leaves_a_process = _Broken("LeavesAProcess")
worker_leaves_a_segment = _Broken("LeavesASegment")

# Of many chunks, the wrong ones: on engines that are short of everything.


def _unsalted(kind: Any) -> Any:
    class Unsalted(kind):  # type: ignore[misc]
        """Lets requests find the cached prefixes of each other."""

        _block_hasher: Any

        def _make_scheduler(self, kv_cache_config: Any) -> Any:
            scheduler = super()._make_scheduler(kv_cache_config)
            hasher = self._block_hasher

            def unsalted(request: Any) -> Any:
                request.cache_salt = None
                return hasher(request)

            self._block_hasher = unsalted
            return scheduler

    return Unsalted


first_chunk_kept = _Broken("FirstChunk")
last_chunk_kept = _Broken("LastChunk")
preempted_taken_for_finished = _Broken("UntilPreempted")
rows_as_they_come = _Broken("InOrderOfForwards", adapted=_unsalted)
rows_in_order_of_the_schedule = _Broken("InOrderOfTheSchedule")

# Replies, steps and time.


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


class _PlainCalls(Calls):
    """Takes whatever arrives for the answer: calls have no numbers."""

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        with self.watched():
            return self._send(method, arguments)


class _Unnumbered(LLMEngine):
    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        plain = _PlainCalls(self._send)
        plain.workers = self._calls.workers
        self._calls = plain


class _BrokenLLM(LLMClient):
    def open(self, spec: EngineSpec) -> LLMEngine:
        check_spec(spec)
        set_variables(spec)
        return _Unnumbered(spec)


bare_reply_indexed = _Broken(engine=_BareReplyIndexed)
client_hangs = _Broken(engine=_Hangs)
sample_tokens_forgotten = _Broken(adapted=_forgetful)
stale_reply_taken = _BrokenLLM()
