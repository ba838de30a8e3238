"""The client that drives the scheduler and the executor itself, through the adapter of its generation."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from harness import delivery
from harness.engine_arguments import set_variables
from harness.errors import CaptureError, ReplyTimeoutError, WorkerFailedError

from .calls import Calls
from .contract import EngineSpec, Sample, check_prompts, check_spec
from .extended import Extended
from .failures import end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.adapters.base import Adapter


class ExecutorEngine(Extended):
    """A booted executor and its scheduler."""

    def __init__(self, spec: EngineSpec, adapter: Adapter) -> None:
        self.spec = spec
        self._adapter = adapter
        self._numbers = itertools.count()
        self._calls = Calls(adapter.rpc)
        self._calls.workers = [identity["pid"] for identity in self.identities()]
        for reason in filter(None, self.ask("harness_start", list(spec.layers))):
            raise WorkerFailedError(reason)

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        check_prompts(self.spec, prompts)
        deadline = time.monotonic() + self.spec.timeout
        self.ask("harness_clear")
        with self._calls.watched(fatal=(CaptureError,)):
            for prompt in prompts:
                self._adapter.add(f"capture-{next(self._numbers)}", prompt)
            while self._adapter.busy():
                if time.monotonic() > deadline:
                    raise ReplyTimeoutError(
                        f"the scheduler still holds requests after {self.spec.timeout:g} s: a prompt does not fit "
                        f"the KV cache or the token budget."
                    )
                self._adapter.step()
        return delivery.samples(self.spec, prompts, self.ask("harness_take"))

    def identities(self) -> list[dict[str, Any]]:
        return self.ask("harness_identity")

    def rpc(
        self, method: str, *arguments: Any, unique_reply_rank: int | None = None, limit: float | None = None
    ) -> Any:
        with self._calls.watched():
            return self._adapter.rpc(method, arguments, unique_reply_rank=unique_reply_rank, limit=limit)

    def rpc_one(self, method: str, rank: int) -> Any:
        """One rank's reply, unwrapped by the adapter."""
        with self._calls.watched():
            return self._adapter.rpc_one(method, rank)

    def steps(self, prompts: Sequence[Sequence[int]], *, skip: int) -> list[dict[str, str]]:
        records = self._adapter.protocol(
            [(f"step-{next(self._numbers)}", list(prompt)) for prompt in prompts], skip=skip
        )
        self.ask("harness_clear")
        return records

    def close(self) -> None:
        end(self._adapter.close, self._calls.workers)


class ExecutorClient:
    """Ours, through vLLM's own scheduler and executor."""

    name = "executor"

    def refuses(self, spec: EngineSpec) -> str | None:
        if spec.engine_core_process:
            return "drives the executor in its own process: there is no EngineCore"
        return None

    def open(self, spec: EngineSpec) -> ExecutorEngine:
        from harness import adapters

        check_spec(spec)
        set_variables(spec)
        adapter = adapters.select()(spec)
        adapter.boot()
        return ExecutorEngine(spec, adapter)


CLIENT = ExecutorClient()
