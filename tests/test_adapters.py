"""The generations of vLLM: which one is at hand, and that each has its adapter."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import fake_vllm
import pytest
from fake_engine import HAS
from snapshots_on_disk import capabilities_of, recorded

from harness import adapters, capabilities, releases, surface
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from pathlib import Path

UNRECORDED = {"moved-planner"}


def test_the_table_of_the_fake_engine_covers_every_generation() -> None:
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
