"""The client that drives the scheduler and the executor itself, through the adapter of its generation."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from harness import delivery
from harness.engine_arguments import set_variables
from harness.errors import ReplyTimeoutError

from .contract import EngineSpec, Sample, check_prompts, check_spec
from .failures import end, translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    import torch

    from harness.adapters.base import Adapter


class ExecutorEngine:
    """A booted executor and its scheduler."""

    def __init__(self, spec: EngineSpec, adapter: Adapter) -> None:
        self.spec = spec
        self._adapter = adapter
        self._numbers = itertools.count()
        self._workers: list[int] = []
        self._workers = [identity["pid"] for identity in self.identities()]
        with self._translated():
            adapter.rpc("harness_start", arguments=(list(spec.layers),))

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._workers)

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        check_prompts(self.spec, prompts)
        deadline = time.monotonic() + self.spec.timeout
        with self._translated():
            for prompt in prompts:
                self._adapter.add(f"capture-{next(self._numbers)}", prompt)
            while self._adapter.busy():
                if time.monotonic() > deadline:
                    raise ReplyTimeoutError(
                        f"the scheduler still holds requests after {self.spec.timeout:g} s: a prompt does not fit "
                        f"the KV cache or the token budget."
                    )
                self._adapter.step()
            replies = self._adapter.rpc("harness_take")
        return delivery.samples(self.spec, prompts, replies)

    def identities(self) -> list[dict[str, Any]]:
        with self._translated():
            replies: list[dict[str, Any]] = self._adapter.rpc("harness_identity")
        return replies

    def activity(self) -> dict[str, int]:
        with self._translated():
            activity: dict[str, int] = self._adapter.rpc("harness_activity")[0]
        return activity

    def inputs(self, prompt: Sequence[int]) -> dict[int, torch.Tensor]:
        with self._translated():
            self._adapter.rpc("harness_follow_inputs")
        self.capture([prompt])
        with self._translated():
            return delivery.merged(self._adapter.rpc("harness_inputs"))

    def rpc(self, method: str, *, unique_reply_rank: int | None = None) -> Any:
        with self._translated():
            return self._adapter.rpc(method, unique_reply_rank=unique_reply_rank)

    def rpc_one(self, method: str, rank: int) -> Any:
        """One rank's reply, unwrapped by the adapter."""
        with self._translated():
            return self._adapter.rpc_one(method, rank)

    def steps(self, prompts: Sequence[Sequence[int]], *, skip: int) -> list[dict[str, str]]:
        records = self._adapter.protocol(
            [(f"step-{next(self._numbers)}", list(prompt)) for prompt in prompts], skip=skip
        )
        with self._translated():
            self._adapter.rpc("harness_take")
        return records

    def close(self) -> None:
        end(self._adapter.close, self._workers)


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
