from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

import pytest
import records
from records import SOUND, case

from harness import releases, wheels
from harness.entries import Entry
from harness.report import gather, steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.evidence import CaseResult
    from harness.report.steps import Step
    from harness.surface import Surface


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_build: releases.Build) -> NoReturn:
        raise AssertionError("a report went to the network")

    monkeypatch.setattr(wheels, "_from_wheel", refuse)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "environments"))


def _at_hand(version: str, *parameters: str) -> None:
    surface: Surface = {
        "Scheduler": Entry(name="Scheduler", place="vllm.core:1", parameters=parameters, returns="None")
    }
    wheels._store(releases.find(version).builds["cpu"], surface)


def _steps(folder: Path, *runs: tuple[str, Sequence[CaseResult]]) -> list[Step]:
    paths = [records.write(folder, release, cases) for release, cases in runs]
    return steps.steps(gather.gather(paths), folder / "snapshots")


def test_neighbours_are_compared_in_order(tmp_path: Path) -> None:
    found = _steps(tmp_path, ("0.16.0", SOUND), ("0.11.0", SOUND), ("0.15.1", SOUND))
    assert [(step.before, step.after) for step in found] == [("0.11.0", "0.15.1"), ("0.15.1", "0.16.0")]


def test_one_release_has_no_step(tmp_path: Path) -> None:
    assert _steps(tmp_path, ("0.16.0", SOUND)) == []


def test_what_is_not_at_hand_is_said_and_not_fetched(tmp_path: Path) -> None:
    _at_hand("0.15.1", "a")
    (tmp_path / "snapshots" / "0.15.1").mkdir(parents=True)
    (step,) = _steps(tmp_path, ("0.15.1", SOUND), ("0.16.0", SOUND))
    assert step.changes == ()
    assert step.unknown == (
        "replies and the step protocol: 0.16.0 has no snapshots",
        "the surface: 0.16.0 is neither in the cache nor installed; `harness diff 0.15.1 0.16.0` reads it",
    )


def test_release_that_is_not_pinned_is_said(tmp_path: Path) -> None:
    _at_hand("0.16.0", "a")
    (step,) = _steps(tmp_path, ("0.16.0", SOUND), ("0.16.5", SOUND))
    assert "the surface: 0.16.5 is not pinned" in step.unknown, step.unknown


def test_changes_come_from_cache_and_snapshots(tmp_path: Path) -> None:
    _at_hand("0.15.1", "a", "b=1")
    _at_hand("0.16.0", "a", "c")
    for version, reply in (("0.15.1", "list"), ("0.16.0", "bare")):
        folder = tmp_path / "snapshots" / version
        folder.mkdir(parents=True)
        (folder / "test_reply.json").write_text(json.dumps({"test_first_rank[x]": reply}), encoding="utf-8")
    (step,) = _steps(tmp_path, ("0.15.1", SOUND), ("0.16.0", SOUND))
    assert step.unknown == ()
    assert step.kinds == {"parameter removed": 1, "parameter required": 1, "recorded live": 1}
    assert step.breaking == 3


def test_cells_that_changed_are_better_or_worse(tmp_path: Path) -> None:
    values = SOUND[4].id
    sound, known, failed, two = (
        SOUND,
        [*SOUND[:4], case(values, "known-fault")],
        [*SOUND[:4], case(values, "failed")],
        [*SOUND[:4], case(values, "failed"), case(f"{values[:-1]}2]", "failed")],
    )
    found = _steps(
        tmp_path,
        *zip(("0.11.0", "0.12.0", "0.13.0", "0.14.1", "0.15.1"), (sound, known, failed, two, sound), strict=True),
    )
    said = [[(result.group, result.client, result.after, result.better) for result in step.results] for step in found]
    assert said == [
        [("values", "llm", "1 known-fault", False)],
        [("values", "llm", "1 failed", False)],
        [("values", "llm", "2 failed", False)],
        [("values", "llm", "1 passed", True)],
    ]


@pytest.mark.parametrize(
    "limits",
    [
        {"keyword": "reply"},
        {"snapshots_of": "0.11.0"},
        {"only": {"executor-mp-tp2": ["test_reply.py::test_first_rank"]}},
    ],
    ids=lambda limits: next(iter(limits)),
)
def test_a_run_of_some_cases_or_held_to_another_release_is_in_no_step(
    tmp_path: Path, limits: dict[str, object]
) -> None:
    """Beside a whole run of its release, and where there is no other: it says nothing of what a release changed."""
    whole = [records.write(tmp_path, version, SOUND) for version in ("0.15.1", "0.17.1")]
    part = [SOUND[0], case(SOUND[1].id, "failed")]
    limited = [
        records.write(tmp_path / "z", version, part, whole=False, **limits) for version in ("0.15.1", "0.16.0")
    ]
    found = steps.steps(gather.gather([*whole, *limited]), tmp_path / "snapshots")
    assert [(step.before, step.after, step.results) for step in found] == [("0.15.1", "0.17.1", ())]


def test_more_cases_that_pass_are_no_change(tmp_path: Path) -> None:
    (step,) = _steps(
        tmp_path, ("0.15.1", SOUND), ("0.16.0", [*SOUND, case("test_values.py::test_more[llm-uni-tp1]")])
    )
    assert step.results == ()


def test_capabilities_that_flipped(tmp_path: Path) -> None:
    facts = records.record("0.16.0", SOUND).environment
    paths = [
        records.write(
            tmp_path,
            "0.15.1",
            SOUND,
            environment={
                **facts,
                "release": "0.15.1",
                "generation": "single-phase",
                "capabilities": {"sample_tokens": False},
            },
        ),
        records.write(tmp_path, "0.16.0", SOUND),
    ]
    (step,) = steps.steps(gather.gather(paths), tmp_path)
    assert step.facts == ("generation: single-phase -> two-phase", "sample_tokens: False -> True")
