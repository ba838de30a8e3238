"""The signatures and fields that clients rely on, read from the installed source files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import surface

if TYPE_CHECKING:
    from collections.abc import Callable

AREAS = {
    "executor": ("Executor.", "MultiprocExecutor.", "UniProcExecutor.", "LLM."),
    "scheduler": ("Scheduler.", "SchedulerOutput", "NewRequestData", "CachedRequestData"),
    "request": ("Request.",),
    "configs": ("SchedulerConfig", "CacheConfig", "ParallelConfig", "VllmConfig"),
    "planner": ("KVCache", "get_", "generate_", "resolve_"),
    "models": ("DeepseekV2", "KimiK25"),
    "workers": ("GPUModelRunner.", "WorkerWrapperBase."),
}


@pytest.fixture(scope="module")
def described() -> dict[str, object]:
    return surface.describe(surface.read(surface.installed_root()))


@pytest.mark.parametrize("area", AREAS)
def test_signatures(area: str, described: dict[str, object], matches: Callable[..., None]) -> None:
    """What clients call and read has the parameters and fields of the pinned release."""
    found = {name: entry for name, entry in described.items() if name.startswith(AREAS[area])}
    matches(
        found,
        cause="this vLLM is not the pinned build of its version: a patched, a nightly or a source build",
        advice="`harness probe` says which distribution is installed; pin the release, or add a row for the build",
    )


def test_every_watched_object_has_an_area(described: dict[str, object]) -> None:
    """No object is watched without being compared."""
    prefixes = tuple(prefix for area in AREAS.values() for prefix in area)
    left = sorted(name for name in described if not name.startswith(prefixes))
    assert not left, f"objects in no area of AREAS: {left}"
