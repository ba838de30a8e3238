"""Room on the disk for the environments of `harness check-all`: when it is made, and of what."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import fake_releases
import pytest
from fake_releases import BUILDS, World

from harness import check_all, environments

if TYPE_CHECKING:
    from pathlib import Path

world = fake_releases.world


class Disk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World, *, free: int, frees: int) -> None:
        def usage(_path: Path) -> Any:
            return SimpleNamespace(free=free + frees * len(world.removed))

        monkeypatch.setattr(shutil, "disk_usage", usage)


@pytest.mark.parametrize(
    ("free", "removed"),
    [
        (check_all.NEEDED_BYTES, []),
        (check_all.NEEDED_BYTES - 1, ["0.15.1"]),
        (check_all.NEEDED_BYTES - 2, ["0.15.1", "0.16.0"]),
        (check_all.NEEDED_BYTES - 3, ["0.15.1", "0.16.0", "cache"]),
        (0, ["0.15.1", "0.16.0", "cache"]),
    ],
)
def test_room_is_made_as_far_as_needed(
    world: World, monkeypatch: pytest.MonkeyPatch, free: int, removed: list[str]
) -> None:
    Disk(monkeypatch, world, free=free, frees=1)
    world.there = ["0.15.1", "0.16.0"]
    check_all.make_room(BUILDS[2], BUILDS[:2])
    assert world.removed == removed


def test_environment_that_is_there_needs_no_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, world, free=0, frees=0)
    world.there = ["0.15.1", "0.17.1"]
    check_all.make_room(BUILDS[2], BUILDS[:2])
    assert world.removed == []


@pytest.mark.parametrize(("prune", "removed"), [(False, []), (True, ["cache", "0.15.1", "cache", "0.16.0", "cache"])])
def test_room_is_made_only_if_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch, prune: bool, removed: list[str]
) -> None:
    Disk(monkeypatch, world, free=0, frees=0)
    assert world.run(prune=prune) == 0
    assert world.removed == removed


def test_pruned_releases_are_kept_and_not_made_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, world, free=0, frees=0)
    assert world.run(prune=True) == 0
    world.made.clear()
    assert world.run(prune=True) == 0
    assert world.made == []


def test_room_is_looked_for_where_environments_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "not" / "yet"))
    assert check_all._free() > 0


def test_removed_environment_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path))
    build = replace(BUILDS[0], release="9.9.9")
    path = tmp_path / "9.9.9"
    assert environments.existing(build) is None
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").touch()
    marker = path / environments.MARKER
    marker.write_text(json.dumps({"fingerprint": "another"}), encoding="utf-8")
    assert environments.existing(build) is None
    marker.write_text(json.dumps({"fingerprint": environments.fingerprint(build, ())}), encoding="utf-8")
    found = environments.existing(build)
    assert found is not None
    assert found.path == path
    environments.remove(build)
    assert environments.existing(build) is None
    assert not path.exists()
    environments.remove(build)
