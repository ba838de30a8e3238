"""A vLLM to boot that only notes what it is asked.

Functions have the parameters of the generation they belong to (signatures of 0.11.0 to 0.33.0), so a call that its
adapter gets wrong is a TypeError.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from test_probing import NO_EOS, OLDEST, TWO_PHASE

from harness import adapters, capabilities
from harness.capabilities import Capabilities
from harness.clients.contract import EngineSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.adapters.base import Adapter

HAS = {
    "single-phase": OLDEST,
    "two-phase": TWO_PHASE,
    "explicit-warm-up": {**NO_EOS, "explicit_warm_up": True},
    "negotiated-layout": {**NO_EOS, "explicit_warm_up": True, "negotiated_layout": True},
    "moved-planner": {**NO_EOS, "explicit_warm_up": True, "negotiated_layout": True, "moved_planner": True},
}
SPEC = EngineSpec(model="model", layers=(0,))
STATE_ERROR = "State error: sample_tokens() must be called after execute_model() returns None."


class ModelRunnerOutput:
    pass


class Request:
    def __init__(self, *, request_id: str, prompt_token_ids: list[int], sampling_params: Any, **more: Any) -> None:
        assert more.pop("pooling_params") is None
        self.request_id, self.prompt, self.more = request_id, prompt_token_ids, more


class Batch(list[str]):
    """Requests by id, of one token each."""

    @property
    def total_num_scheduled_tokens(self) -> int:
        return len(self)

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        return dict.fromkeys(self, 1)


class Scheduler:
    """Gives each request one step, then a step that tells the workers that it has finished."""

    def __init__(
        self, *, vllm_config: Any, kv_cache_config: Any, structured_output_manager: Any, **sizes: int
    ) -> None:
        self.sizes = sizes
        self.waiting: list[Request] = []
        self.running: set[str] = set()
        self.finished: list[str] = []
        self.aborted: list[str] = []

    def add_request(self, request: Request) -> None:
        self.waiting.append(request)

    def has_requests(self) -> bool:
        return bool(self.waiting or self.running or self.finished)

    def schedule(self) -> Batch:
        batch = Batch(request.request_id for request in self.waiting)
        self.waiting = []
        self.running |= set(batch)
        if not batch:
            self.finished = []
        return batch

    def update_from_output(self, scheduled: list[str], output: Any) -> None:
        assert isinstance(output, ModelRunnerOutput), output
        self.running -= set(scheduled)
        self.finished += scheduled

    def finish_requests(self, request_ids: list[str], status: str) -> None:
        assert status == "aborted"
        self.running -= set(request_ids)
        self.finished += request_ids
        self.aborted += request_ids


def _later(given: Any, non_block: bool) -> Any:
    return SimpleNamespace(result=lambda: given) if non_block else given


class Executor:
    def __init__(self, has: Capabilities, calls: list[str]) -> None:
        self.has, self.calls = has, calls
        self.owed = False
        self.served: list[str] = []

    def get_kv_cache_specs(self) -> list[dict[str, str]]:
        self.calls.append("specs")
        return [{"layer": "spec"}]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["NHD"]]

    def set_kv_cache_layout(self, *arguments: Any) -> None:
        assert arguments == (("NHD", 7) if self.has.moved_planner else ("NHD",)), arguments
        self.calls.append("layout")

    def determine_available_memory(self) -> list[int]:
        self.calls.append("memory")
        return [1000]

    def initialize_from_config(self, configs: list[Any]) -> None:
        if self.has.negotiated_layout:
            assert [config.kv_cache_layout for config in configs] == ["from the cache config"]
        self.calls.append("initialize")

    def compile_or_warm_up_model(self) -> None:
        self.calls.append("warm up")

    def execute_model(self, scheduled: list[str], *, non_block: bool = False) -> Any:
        if self.owed:
            raise RuntimeError(f"Worker failed with error '{STATE_ERROR}'")
        self.served += scheduled
        self.owed = self.has.sample_tokens and bool(scheduled)
        return _later(None if self.owed else ModelRunnerOutput(), non_block)

    def sample_tokens(self, _grammar: None, *, non_block: bool = False) -> Any:
        assert self.owed
        self.owed = False
        return _later(ModelRunnerOutput(), non_block)

    def collective_rpc(
        self, method: str, *, timeout: float, args: tuple[Any, ...], unique_reply_rank: int | None = None
    ) -> Any:
        assert timeout == SPEC.timeout
        replies = [(method, rank, *args) for rank in (0, 1)]
        if unique_reply_rank is None:
            return replies
        one = replies[unique_reply_rank]
        return one if self.has.bare_unique_reply else [one]

    def shutdown(self) -> None:
        self.calls.append("shutdown")


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        path = ".".join(parts[:count])
        if path not in sys.modules:
            monkeypatch.setitem(sys.modules, path, ModuleType(path))
    for key, value in members.items():
        monkeypatch.setattr(sys.modules[name], key, value, raising=False)


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Adapter, list[str]]]:
    """``boot(generation)`` gives a booted adapter and the calls its boot made; ``fails`` names one that raises."""

    def make(name: str, *, fails: str = "", spec: EngineSpec = SPEC) -> tuple[Adapter, list[str]]:
        has = Capabilities(**HAS[name])
        calls: list[str] = []
        executor = Executor(has, calls)
        config = SimpleNamespace(
            cache_config=SimpleNamespace(num_gpu_blocks=None, block_size=16, kv_cache_layout="from the cache config"),
            parallel_config=SimpleNamespace(cp_kv_cache_interleave_size=7),
            adjust_dcp_kv_cache_interleave_size=lambda groups: calls.append(f"interleave {groups}"),
        )
        groups = [SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=size)) for size in (64, 32)]

        def plan(_config: Any, _specs: Any, _memory: Any) -> list[Any]:
            if fails == "plan":
                raise ValueError("no memory left")
            calls.append("plan")
            return [SimpleNamespace()]

        def plan_groups(_config: Any, _specs: Any, _memory: Any, global_kv_cache_groups: Any) -> list[Any]:
            calls.append(f"plan {global_kv_cache_groups}")
            return [SimpleNamespace()]

        def scheduler_config(configs: list[Any]) -> Any:
            assert len(configs) == 1
            return SimpleNamespace(num_blocks=123, kv_cache_groups=groups)

        def layout(_config: Any, supported: list[list[str]], specs: list[str]) -> Any:
            assert supported == [["NHD"]]
            assert specs == ["spec"]
            return SimpleNamespace(name="NHD")

        monkeypatch.setattr(capabilities, "installed", lambda: has)
        _module(
            monkeypatch,
            "vllm",
            EngineArgs=lambda **_arguments: SimpleNamespace(create_engine_config=lambda: config),
            SamplingParams=dict,
        )
        _module(monkeypatch, "vllm.config", set_current_vllm_config=lambda _config: contextlib.nullcontext())
        _module(monkeypatch, "vllm.plugins", load_general_plugins=lambda: calls.append("plugins"))
        _module(
            monkeypatch,
            "vllm.v1.executor.abstract",
            Executor=SimpleNamespace(get_class=lambda _config: lambda _config: executor),
        )
        _module(monkeypatch, "vllm.v1.core.sched.scheduler", Scheduler=Scheduler)
        _module(monkeypatch, "vllm.v1.structured_output", StructuredOutputManager=lambda _config: None)
        _module(
            monkeypatch,
            "vllm.v1.request",
            Request=Request,
            RequestStatus=SimpleNamespace(FINISHED_ABORTED="aborted"),
        )
        _module(monkeypatch, "vllm.v1.core.kv_cache_utils", generate_scheduler_kv_cache_config=scheduler_config)
        if has.moved_planner:
            _module(
                monkeypatch,
                "vllm.v1.core.kv_cache_planning",
                get_kv_cache_configs=plan_groups,
                get_global_kv_cache_groups=lambda _config, _specs: "groups",
            )
        else:
            _module(monkeypatch, "vllm.v1.core.kv_cache_utils", get_kv_cache_configs=plan)
        if has.scheduler_takes_hash_block_size:
            _module(
                monkeypatch,
                "vllm.v1.core.kv_cache_utils",
                resolve_kv_cache_block_sizes=lambda _kv_cache_config, _config: (64, 8),
            )
        if has.negotiated_layout:
            _module(monkeypatch, "vllm.v1.attention.backends.utils", resolve_kv_cache_layout=layout)
        module = importlib.import_module(f"harness.adapters.{name.replace('-', '_')}")
        adapter: Adapter = getattr(module, adapters.GENERATIONS[name])(spec)
        adapter.executor = executor if fails else None
        adapter.boot()
        return adapter, calls

    return make
