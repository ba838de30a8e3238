from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import snapshots_on_disk

from harness import known_faults, limits, releases, settings

if TYPE_CHECKING:
    from harness.settings import Group

GROUPS = settings.plan([], [])
# 0.11.2 runs on newer systems than its neighbours do: docs/known-faults.md.
BUILDS = [build for each in releases.with_build("cpu") if (build := each.build("cpu")).glibc is None]
NEWEST = BUILDS[-1].release


def _of_engines(release: str) -> dict[str, Group]:
    """The cases that have a snapshot for each engine, such as ``test_reply.py::test_all_ranks[llm-mp-tp2]``."""
    found: dict[str, Group] = {}
    for path in (snapshots_on_disk.SNAPSHOTS / release).glob("*.json"):
        for name in json.loads(path.read_text(encoding="utf-8")):
            parameters = name.partition("[")[2]
            found |= {f"{path.stem}.py::{name}": group for group in GROUPS if parameters.startswith(group.name)}
    return found


def _runs(case: str, group: Group, release: str) -> bool:
    known = known_faults.of_case(release, "cpu", case)
    return known is None and limits.of_build(release, "cpu", group.needs) is None


@pytest.mark.parametrize("release", [build.release for build in BUILDS])
def test_every_engine_of_a_release_is_held_to_a_snapshot_of_every_case(release: str) -> None:
    wanted = {case for case, group in _of_engines(NEWEST).items() if _runs(case, group, release)}
    recorded = set(_of_engines(release))
    missing, unused = sorted(wanted - recorded), sorted(recorded - wanted)
    assert not missing, f"run `harness check --update-snapshots` on {release}: it lacks {missing}"
    assert not unused, f"{release} runs no case for {unused}"
