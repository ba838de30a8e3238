from __future__ import annotations

import contextlib
import importlib
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import fake_vllm
import pytest
from snapshots_on_disk import capabilities_of, recorded
from test_probing import NO_EOS, OLDEST, TWO_PHASE

from harness import adapters, capabilities, releases, surface
from harness.adapters.ahead import Ahead
from harness.capabilities import Capabilities
from harness.clients.contract import EngineSpec
from harness.errors import EnvironmentUnusableError, NotApplicableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.adapters.base import Adapter
    from harness.clients.contract import ExecutorBackend

# 0.33.0, the only release of that generation, has no CPU build: there is nothing to record it on.
UNRECORDED = {"moved-planner"}
HAS = {
    "single-phase": OLDEST,
    "two-phase": TWO_PHASE,
    "explicit-warm-up": {**NO_EOS, "explicit_warm_up": True},
    "negotiated-layout": {**NO_EOS, "explicit_warm_up": True, "negotiated_layout": True},
    "moved-planner": {**NO_EOS, "explicit_warm_up": True, "negotiated_layout": True, "moved_planner": True},
}
SPEC = EngineSpec(model="model", layers=(0,))


def test_the_table_of_this_file_covers_every_generation() -> None:
    assert list(HAS) == list(adapters.GENERATIONS) == list(fake_vllm.GENERATIONS)


@pytest.mark.parametrize("name", adapters.GENERATIONS)
def test_generation_of_a_source_tree(tmp_path: Path, name: str) -> None:
    root = fake_vllm.write(tmp_path, fake_vllm.GENERATIONS[name])
    assert adapters.generation(capabilities.of(surface.read(root))) == name


def test_too_old_a_vllm_exits_4_with_advice(tmp_path: Path) -> None:
    has = capabilities.of(surface.read(fake_vllm.write(tmp_path, fake_vllm.TOO_OLD)))
    with pytest.raises(EnvironmentUnusableError, match=r"Use vLLM 0\.11\.0 or newer") as caught:
        adapters.generation(has)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(("name", "class_name"), adapters.GENERATIONS.items())
def test_generation_has_its_module_and_class(name: str, class_name: str) -> None:
    module = importlib.import_module(f"harness.adapters.{name.replace('-', '_')}")
    adapter = getattr(module, class_name)
    assert adapter.generation == name
    assert not adapter.__abstractmethods__, adapter.__abstractmethods__


@pytest.mark.parametrize("name", adapters.GENERATIONS)
def test_installed_vllm_selects_its_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fake_vllm.install(tmp_path, fake_vllm.GENERATIONS[name])
    monkeypatch.syspath_prepend(tmp_path)
    assert adapters.select().generation == name


def test_recorded_generations_follow_from_recorded_capabilities() -> None:
    rows = recorded()
    assert rows
    for version, row in rows.items():
        assert adapters.generation(capabilities_of(row)) == row["generation"], version


@pytest.mark.parametrize("name", [name for name in adapters.GENERATIONS if name not in UNRECORDED])
def test_generation_is_that_of_a_recorded_release(name: str) -> None:
    chosen = [version for version, row in recorded().items() if row["generation"] == name]
    assert chosen, f"no recorded release is of generation {name}: record one, or remove its adapter"


def test_generation_without_a_record_has_no_cpu_build() -> None:
    assert "cpu" not in releases.find("0.33.0").builds, f"0.33.0 has a CPU build: record it, and empty {UNRECORDED}"


# A vLLM that only notes what it is asked: functions have the parameters of the generation they belong to
# (signatures of 0.11.0 to 0.33.0), so a call that its adapter gets wrong is a TypeError.

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


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("single-phase", ["specs", "memory", "plan", "initialize"]),
        ("two-phase", ["specs", "memory", "plan", "initialize"]),
        ("explicit-warm-up", ["specs", "memory", "plan", "initialize", "warm up"]),
        ("negotiated-layout", ["specs", "layout", "memory", "plan", "initialize", "warm up"]),
        (
            "moved-planner",
            ["specs", "interleave groups", "layout", "memory", "plan groups", "initialize", "warm up"],
        ),
    ],
)
def test_boot_does_the_steps_of_its_generation(boot: Any, name: str, calls: list[str]) -> None:
    _adapter, made = boot(name)
    assert made == ["plugins", *calls]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("single-phase", {}),
        ("two-phase", {"block_size": 32}),
        ("explicit-warm-up", {"block_size": 64, "hash_block_size": 8}),
        ("moved-planner", {"block_size": 64, "hash_block_size": 8}),
    ],
)
def test_scheduler_gets_the_block_sizes_of_the_groups(boot: Any, name: str, sizes: dict[str, int]) -> None:
    adapter, _calls = boot(name)
    assert adapter.scheduler.sizes == sizes
    assert adapter.vllm_config.cache_config.block_size == 32
    assert adapter.vllm_config.cache_config.num_gpu_blocks == 123


def test_boot_that_fails_ends_the_workers(boot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(Executor, "shutdown", lambda _self: ended.append(True))
    with pytest.raises(ValueError, match="no memory left"):
        boot("two-phase", fails="plan")
    assert ended == [True]


@pytest.mark.parametrize("name", adapters.GENERATIONS)
def test_steps_run_every_request_and_tell_of_the_finished(boot: Any, name: str) -> None:
    adapter, _calls = boot(name)
    for number in range(3):
        adapter.add(f"r{number}", [5, 6])
    while adapter.busy():
        adapter.step()
    assert adapter.executor.served == ["r0", "r1", "r2"]
    assert not adapter.executor.owed


@pytest.mark.parametrize("name", adapters.GENERATIONS)
def test_batches_ahead_run_every_request_and_tell_of_the_finished(boot: Any, name: str) -> None:
    adapter, _calls = boot(name)
    ahead = Ahead(adapter)
    for number in range(3):
        adapter.add(f"r{number}", [5, 6])
        ahead.step()
    while ahead.busy():
        ahead.step()
    assert adapter.executor.served == ["r0", "r1", "r2"]
    assert not adapter.executor.owed


class Waiting(Executor):
    """Gives what is not there yet, and says what is waited for; ``fails`` is a phase that raises."""

    fails = ""

    def execute_model(self, scheduled: list[str], *, non_block: bool = False) -> Any:
        return self._later("forward", super().execute_model(scheduled), non_block)

    def sample_tokens(self, grammar: None, *, non_block: bool = False) -> Any:
        return self._later("sampled", super().sample_tokens(grammar), non_block)

    def _later(self, phase: str, given: Any, non_block: bool) -> Any:
        self.calls.append(phase)

        def result() -> Any:
            self.calls.append(f"wait for {phase}")
            if phase == self.fails:
                raise ValueError(f"{phase} failed")
            return given

        return SimpleNamespace(result=result) if non_block else given


def _waiting(boot: Any, backend: ExecutorBackend = "mp") -> tuple[Adapter, Waiting, list[str]]:
    adapter, calls = boot("two-phase", spec=replace(SPEC, executor_backend=backend))
    executor = Waiting(adapter.executor.has, calls)
    adapter.executor = executor
    calls.clear()
    return adapter, executor, calls


def test_both_phases_are_asked_for_before_one_is_waited_for(boot: Any) -> None:
    adapter, _executor, calls = _waiting(boot)
    output = adapter.begin(Batch(["r0"]))
    assert calls == ["forward", "sampled"]
    assert isinstance(output(), ModelRunnerOutput)
    assert calls[2:] == ["wait for forward", "wait for sampled"]


def test_a_batch_without_tokens_has_no_second_phase(boot: Any) -> None:
    adapter, _executor, calls = _waiting(boot)
    assert isinstance(adapter.begin(Batch())(), ModelRunnerOutput)
    assert calls == ["forward", "wait for forward"]


def test_what_a_forward_raised_is_not_hidden_by_the_second_phase(boot: Any) -> None:
    adapter, executor, calls = _waiting(boot)
    executor.fails = "forward"
    output = adapter.begin(Batch(["r0"]))
    with pytest.raises(ValueError, match="forward failed"):
        output()
    assert "wait for sampled" not in calls


@pytest.mark.parametrize("backend", ["ray", "uni"])
def test_nothing_is_under_way_but_in_worker_processes(boot: Any, backend: ExecutorBackend) -> None:
    adapter, _executor, calls = _waiting(boot, backend)
    output = adapter.begin(Batch(["r0"]))
    assert calls == ["forward", "sampled"]
    assert isinstance(output(), ModelRunnerOutput)
    assert calls == ["forward", "sampled"], "it was waited for before"


@pytest.mark.parametrize(("name", "takes"), [("single-phase", True), ("two-phase", True), ("moved-planner", False)])
def test_request_gets_the_end_token_where_it_is_needed(boot: Any, name: str, takes: bool) -> None:
    adapter, _calls = boot(name)
    adapter.add("r0", (5, 6))
    (request,) = adapter.scheduler.waiting
    assert request.prompt == [5, 6]
    assert ("eos_token_id" in request.more) == takes


REQUESTS = [("r0", [5]), ("r1", [6]), ("r2", [7])]
SOUND = {"execute_model": "None", "sample_tokens": "ModelRunnerOutput"}
SKIPPED = {"execute_model": "None", "sample_tokens": "skipped"}
BLOCKED = {"execute_model": f"RuntimeError: {STATE_ERROR}", "sample_tokens": "not reached"}


@pytest.mark.parametrize(
    ("skip", "records"),
    [(0, [SOUND, SOUND, SOUND]), (1, [SKIPPED, BLOCKED, BLOCKED]), (2, [SKIPPED, BLOCKED, BLOCKED])],
)
@pytest.mark.parametrize("name", ["two-phase", "negotiated-layout"])
def test_a_phase_that_is_owed_blocks_the_next_step_and_is_paid_in_the_end(
    boot: Any, name: str, skip: int, records: list[dict[str, str]]
) -> None:
    adapter, _calls = boot(name)
    assert adapter.protocol(REQUESTS, skip=skip) == records
    assert not adapter.executor.owed
    assert not adapter.busy()
    assert sorted(adapter.executor.served) == ["r0", "r1", "r2"]


class Forgetful(Executor):
    """As model runner V2: a batch that is owed is forgotten when the next one comes."""

    def execute_model(self, scheduled: list[str], *, non_block: bool = False) -> Any:
        self.owed = False
        return super().execute_model(scheduled, non_block=non_block)

    def sample_tokens(self, grammar: None, *, non_block: bool = False) -> Any:
        return super().sample_tokens(grammar, non_block=non_block) if self.owed else None


@pytest.mark.parametrize(
    ("skip", "records", "lost"),
    [
        (0, [SOUND, SOUND, SOUND], []),
        (1, [SKIPPED, SOUND, SOUND], ["r0"]),
        (2, [SKIPPED, SKIPPED, SOUND], ["r1", "r0"]),
        (3, [SKIPPED, SKIPPED, SKIPPED], ["r1", "r0"]),
    ],
)
def test_batches_that_the_runner_forgets_are_given_up_and_the_engine_is_free(
    boot: Any, skip: int, records: list[dict[str, str]], lost: list[str]
) -> None:
    adapter, calls = boot("two-phase")
    adapter.executor = Forgetful(adapter.executor.has, calls)
    assert adapter.protocol(REQUESTS, skip=skip) == records
    assert adapter.scheduler.aborted == lost
    assert not adapter.busy(), f"still running: {adapter.scheduler.running}"


@pytest.mark.parametrize("skip", [0, 2])
def test_a_single_phase_owes_nothing(boot: Any, skip: int) -> None:
    adapter, _calls = boot("single-phase")
    records = adapter.protocol(REQUESTS, skip=skip)
    assert records == [{"execute_model": "ModelRunnerOutput", "sample_tokens": "absent"}] * 3
    assert not adapter.busy()


@pytest.mark.parametrize("name", adapters.GENERATIONS)
def test_one_ranks_reply_is_bare_in_every_generation(boot: Any, name: str) -> None:
    adapter, _calls = boot(name)
    assert adapter.rpc("who", arguments=(1,)) == [("who", 0, 1), ("who", 1, 1)]
    assert adapter.rpc_one("who", 1) == ("who", 1)


def test_raw_reply_is_left_as_it_is(boot: Any) -> None:
    assert boot("single-phase")[0].rpc("who", unique_reply_rank=0) == [("who", 0)]
    assert boot("two-phase")[0].rpc("who", unique_reply_rank=0) == ("who", 0)


def test_one_rank_cannot_be_asked_for_in_a_single_process(boot: Any) -> None:
    adapter, _calls = boot("two-phase", spec=EngineSpec(model="model", layers=(0,), executor_backend="uni"))
    with pytest.raises(NotApplicableError, match="unique_reply_rank"):
        adapter.rpc("who", unique_reply_rank=0)


def test_closing_twice_ends_the_executor_once(boot: Any) -> None:
    adapter, calls = boot("two-phase")
    adapter.close()
    adapter.close()
    assert calls.count("shutdown") == 1


def test_rank_of_an_executor_that_cannot_choose_one_is_not_applicable(boot: Any) -> None:
    """As Ray's, which replies with all ranks only."""
    adapter, _calls = boot("two-phase")

    def of_all(method: str, timeout: float, args: tuple[Any, ...]) -> list[Any]:
        return [(method, timeout, args)]

    adapter.executor.collective_rpc = of_all
    assert adapter.rpc("who", limit=1.0) == [("who", 1.0, ())]
    with pytest.raises(NotApplicableError, match="has no unique_reply_rank"):
        adapter.rpc("who", unique_reply_rank=0)
