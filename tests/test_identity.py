"""What evidence is bound to beside vLLM: devices, variables, the code of a client."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from harness import clients, hardware, identity, releases, variables
from harness.hardware import Gpu

if TYPE_CHECKING:
    from pathlib import Path

H200 = [Gpu(name=f"NVIDIA H200 {number}", uuid=f"GPU-{number}{number}-abc") for number in range(4)]

PROC_VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (root@builder)\n"
    "GCC version:  gcc version 12.3.0\n"
)
PROC_GPU = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t GPU-1234\nDevice Minor: \t 0\n"


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-33", [3]),
        ("1,9,2", [1]),
        ("-1", []),
        ("0, 1", [0, 1]),
    ],
)
def test_gpus_are_those_that_cuda_shows(chosen: str | None, seen: list[int]) -> None:
    assert hardware.visible(H200, chosen) == [H200[number] for number in seen]


def test_a_cpu_is_one_device_with_a_name() -> None:
    found = hardware.describe("cpu")
    assert (found["kind"], found["count"], found["driver"], len(found["names"])) == ("cpu", 1, None, 1)
    assert found["names"][0], found


def test_gpus_are_read_from_the_drivers_files_where_nvml_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (0, 1):
        folder = tmp_path / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(PROC_GPU, encoding="utf-8")
    (tmp_path / "version").write_text(PROC_VERSION, encoding="utf-8")
    monkeypatch.setattr(hardware, "DRIVER_FILE", tmp_path / "version")
    monkeypatch.setattr(hardware, "GPU_FILES", tmp_path / "gpus")
    monkeypatch.setattr(hardware, "_from_nvml", lambda: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert hardware.describe("cuda") == {
        "kind": "cuda",
        "count": 1,
        "names": ["NVIDIA H200"],
        "driver": "570.133.20",
    }


def test_without_a_driver_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "DRIVER_FILE", tmp_path / "version")
    monkeypatch.setattr(hardware, "_from_nvml", lambda: None)
    assert hardware.describe("cuda") == {"kind": "cuda", "count": 0, "names": [], "driver": None}


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("VLLM_ATTENTION_BACKEND", True),
        ("VLLM_USE_V2_MODEL_RUNNER", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("NCCL_ALGO", True),
        ("TORCHDYNAMO_DISABLE", True),
        ("TORCH_COMPILE_DISABLE", True),
        ("OMP_NUM_THREADS", True),
        ("VLLM_API_KEY", False),
        ("VLLM_ENABLE_V1_MULTIPROCESSING", False),
        ("VLLM_LOGGING_LEVEL", False),
        ("NCCL_DEBUG", False),
        ("VLLM_NO_USAGE_STATS", False),
        ("HOME", False),
        ("PATH", False),
    ],
)
def test_variables_that_decide_a_forward_are_bound_and_no_others(name: str, bound: bool) -> None:
    assert (variables.reason(name) is not None) is bound
    assert variables.bound({}, {name: "1"}) == ({name: "1"} if bound else {})


def test_what_the_user_has_set_counts_before_what_the_suite_sets() -> None:
    builds = {"OMP_NUM_THREADS": "1", "VLLM_MLA_DISABLE": "1", "DO_NOT_TRACK": "1"}
    users = {"OMP_NUM_THREADS": "8", "HOME": "/somewhere"}
    assert variables.bound(builds, users) == {"OMP_NUM_THREADS": "8", "VLLM_MLA_DISABLE": "1"}
    assert variables.left_to_the_suite(builds, users) == {"VLLM_MLA_DISABLE": "1"}


def test_every_rule_on_variables_has_a_reason() -> None:
    rules = [rule for kind in variables.load().values() for rule in kind]
    assert [rule.names for rule in rules if len(rule.why.split()) < 4] == []


def test_every_variable_that_a_build_sets_is_bound_or_said_to_be_free() -> None:
    names = {name for release in releases.load() for build in release.builds.values() for name in build.environment}
    free = {"VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"}
    assert sorted(name for name in names if variables.reason(name) is None) == sorted(free & names)


# The code of a client.


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a_users_client.py"
    path.write_text("CLIENT = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return path


def test_client_is_bound_to_its_file(module: Path) -> None:
    before = identity.client("a_users_client:CLIENT")
    assert identity.client("a_users_client:CLIENT") == before
    module.write_text("CLIENT = 2\n", encoding="utf-8")
    after = identity.client("a_users_client:CLIENT")
    assert before["sha256"] != after["sha256"]
    assert (before["distributions"], "a_users_client" in sys.modules) == ({}, False)


def test_client_in_a_package_is_bound_to_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a_users_package"
    folder.mkdir()
    for name in ("__init__", "client", "hooks"):
        (folder / f"{name}.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    before = identity.client("a_users_package.client:CLIENT")["sha256"]
    (folder / "hooks.py").write_text("# other\n", encoding="utf-8")
    assert identity.client("a_users_package.client:CLIENT")["sha256"] != before


def test_installed_client_is_bound_to_its_distribution() -> None:
    found = identity.client("pluggy:PluginManager")
    assert found["sha256"] is None
    assert list(found["distributions"]) == ["pluggy"]
    assert len(found["distributions"]["pluggy"]["record_sha256"]) == 64, found


def test_client_is_bound_to_what_it_needs_beside_vllm() -> None:
    found = identity.client("speculators-0.3.0")
    assert found["distributions"] == {"speculators": {"version": None, "record_sha256": None}}
    assert len(found["sha256"]) == 64, found
    assert set(clients.REQUIREMENTS) <= set(clients.IN_HOUSE)


def test_client_that_is_not_there_is_bound_to_nothing() -> None:
    assert identity.client("no_such_module.at_all:CLIENT") == {"sha256": None, "distributions": {}}
