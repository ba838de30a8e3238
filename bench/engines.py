"""The ways as clients, each opened in a process of its own by `harness.host`.

An engine's ``deliver(prompts, folder)`` brings every state to where the way brings it, and tells how many
``seconds`` that took. A way that writes files has written all of them by then; whoever asked looks at them then.
"""

from __future__ import annotations

import itertools
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harness import adapters, delivery
from harness.adapters.ahead import Ahead
from harness.clients.contract import EngineSpec, check_spec
from harness.clients.extract import ExtractEngine
from harness.clients.extraction import files
from harness.clients.failures import end
from harness.clients.llm import OpenLLM
from harness.engine_arguments import set_variables
from harness.errors import IncompleteSampleError
from harness.extraction.jobs import Job, Tuning

from . import written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .studied import Study


class Engine(Protocol):
    """What a way opens."""

    def deliver(self, prompts: Sequence[Sequence[int]], folder: str) -> dict[str, float]: ...

    def close(self) -> None: ...


class PlainEngine:
    """The scheduler and the executor, driven by the adapter of this vLLM's generation. Nothing is captured."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self._numbers = itertools.count()
        self._adapter = adapters.select()(spec)
        self._adapter.boot()
        self._ahead = Ahead(self._adapter)
        self._workers = [identity["pid"] for identity in self._adapter.rpc("harness_identity")]

    def deliver(self, prompts: Sequence[Sequence[int]], folder: str) -> dict[str, float]:
        start = time.monotonic()
        self._prefill(prompts)
        return {"seconds": time.monotonic() - start}

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        for prompt in prompts:
            self._adapter.add(f"bench-{next(self._numbers)}", prompt)
        while self._ahead.busy():
            self._ahead.step()

    def close(self) -> None:
        end(self._adapter.close, self._workers)


class ReplyEngine(PlainEngine):
    """Clones on the device, fetched through ``collective_rpc`` a batch: as many prompts as one step takes."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._adapter.rpc("bench_start", (list(spec.layers),))

    def deliver(self, prompts: Sequence[Sequence[int]], folder: str) -> dict[str, float]:
        start = time.monotonic()
        kept = []  # As whoever trains on them would: a batch is not dropped before the next.
        for batch in _batches(prompts, self.spec.max_num_batched_tokens):
            self._prefill(batch)
            states = delivery.require_tensors(self._adapter.rpc_one("bench_take", 0))
            rows, wanted = {len(layer) for layer in states}, sum(map(len, batch))
            if rows != {wanted} or len(states) != len(self.spec.layers):
                raise IncompleteSampleError(f"{len(states)} layers of {rows} rows came back for {wanted} tokens")
            kept.append(states)
        return {"seconds": time.monotonic() - start}


def _batches(prompts: Sequence[Sequence[int]], budget: int) -> Iterator[list[Sequence[int]]]:
    batch: list[Sequence[int]] = []
    for prompt in prompts:
        if batch and sum(map(len, batch)) + len(prompt) > budget:
            yield batch
            batch = []
        batch.append(prompt)
    yield batch


class LLMEngine(OpenLLM):
    """``LLM.generate``; nothing is captured."""

    def deliver(self, prompts: Sequence[Sequence[int]], folder: str) -> dict[str, float]:
        start = time.monotonic()
        self._prefill([{"prompt_token_ids": list(prompt)} for prompt in prompts])
        return {"seconds": time.monotonic() - start}


class ConnectorEngine(OpenLLM):
    """vLLM's own extraction, into the folder that the spec's arguments name."""

    def deliver(self, prompts: Sequence[Sequence[int]], folder: str) -> dict[str, float]:
        start = time.monotonic()
        outputs = self._prefill([{"prompt_token_ids": list(prompt)} for prompt in prompts])
        deadline = start + self.spec.timeout
        for number, output in enumerate(outputs):
            path = files.promised(number, output)
            if path.with_name(f"{path.name}.lock").exists():
                files.wait(path, deadline, lambda: None)
            else:  # On 0.20.2 every rank writes it in its forward (`save_kv_layer`), and rank 0 alone is waited for.
                written.wait_whole(path, deadline)
        return {"seconds": time.monotonic() - start}


class StudiedEngine(ExtractEngine):
    """Ours, or ours with a part of its delivery left out."""

    def deliver(
        self,
        prompts: Sequence[Sequence[int]],
        folder: str,
        *,
        study: Study = "written",
        tuning: Tuning | None = None,
    ) -> dict[str, float]:
        """As the others; and how long the forward waited for room, as ``stalled``."""
        self.rpc("bench_study", study)
        self._tuning = tuning or Tuning()
        self.start(folder)
        start = time.monotonic()
        self.add([Job(index=index, token_ids=array("q", prompt)) for index, prompt in enumerate(prompts)])
        progress = self.finish()
        seconds = time.monotonic() - start
        if len(progress.delivered) != len(prompts):
            raise IncompleteSampleError(f"{len(progress.delivered)} of {len(prompts)} samples were delivered")
        return {"seconds": seconds, "stalled": progress.stalled}


def _studied(spec: EngineSpec) -> StudiedEngine:
    adapter = adapters.select()(spec)
    adapter.boot()
    return StudiedEngine(spec, adapter, Tuning())


@dataclass(frozen=True)
class Way:
    """A client, as far as `harness.host` needs one."""

    name: str
    make: Callable[[EngineSpec], Engine]

    def refuses(self, spec: EngineSpec) -> str | None:
        return None

    def open(self, spec: EngineSpec) -> Engine:
        check_spec(spec)
        set_variables(spec)
        return self.make(spec)


PLAIN = Way("plain", PlainEngine)
PLAIN_LLM = Way("plain-llm", LLMEngine)
REPLY = Way("reply", ReplyEngine)
CONNECTOR = Way("connector", ConnectorEngine)
EXTRACT = Way("extract", _studied)
