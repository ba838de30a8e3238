"""Which of several runs of a case says how it is, by what became of its engine in each."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import gated
import pytest
from gated import World

from harness import coverage
from harness.evidence import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from harness.evidence import Evidence

ENGINE = "executor-mp-tp2"
CASE = f"test_layers.py::test_sound_data[{ENGINE}]"
ENGINES = ("sound", "left behind", "missing", "of another setting")


def _ran(world: World, outcome: Outcome, engine: str, minutes: float) -> Evidence:
    """A run in which one case ended so, on an engine of which that became, so long ago."""
    record = world.complete()
    record.started = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=minutes)).isoformat(timespec="seconds")
    finding = gated.FOUND if outcome in {"failed", "error"} else None
    record.cases = [
        replace(case, outcome=outcome, finding=finding) if case.id == CASE else case for case in record.cases
    ]
    if engine == "missing":
        record.engines = [each for each in record.engines if each.group != ENGINE]
    changes = {
        "left behind": lambda each: replace(each, left_behind=[4711]),
        "of another setting": lambda each: replace(each, spec={**each.spec, "tensor_parallel_size": 1}),
    }
    if engine in changes:
        record.engines = [changes[engine](each) if each.group == ENGINE else each for each in record.engines]
    return record


def _why(world: World, records: list[Evidence]) -> str | None:
    """Why the case is not covered; None if it is."""
    _covered, gaps = coverage.covered(world.needs(), records, gated.RELEASE, "cpu")
    return next((gap.why for gap in gaps if gap.case == CASE), None)


def _says(outcome: Outcome, engine: str) -> tuple[bool, str | None]:
    """Whether a run says how the case is, and what."""
    if engine == "of another setting" or (outcome, engine) == ("passed", "missing"):
        return False, None
    if outcome == "known-fault":
        return True, "known fault"
    return True, None if (outcome, engine) == ("passed", "sound") else "did not pass"


@pytest.mark.parametrize(
    ("outcome", "engine", "older"),
    list(itertools.product(get_args(Outcome), ENGINES, [None, "passed", "failed"])),
)
def test_newest_run_whose_engine_was_of_the_setting_says_how_a_case_is(
    tmp_path: Path, outcome: Outcome, engine: str, older: Outcome | None
) -> None:
    world = World(tmp_path / "results")
    assert CASE in [case.id for case in world.record.cases]
    records = [_ran(world, outcome, engine, minutes=1)]
    if older is not None:
        records.insert(0, _ran(world, older, "sound", minutes=60))
    says, why = _says(outcome, engine)
    if not says:
        why = {None: "not run", "passed": None, "failed": "did not pass"}[older]
    assert _why(world, records) == why, (outcome, engine, older)


@pytest.mark.parametrize("older", [True, False])
def test_engine_that_left_processes_behind_is_named_and_not_run_again_by_itself(
    tmp_path: Path, *, older: bool
) -> None:
    world = World(tmp_path / "results")
    world.write(_ran(world, "passed", "left behind", minutes=1))
    if older:
        world.write(_ran(world, "passed", "sound", minutes=60), "older.json")
    decision = world.decide()
    assert f"engine {ENGINE} left processes behind" in world.refused()
    assert (bool(decision.gaps), decision.missing) == (True, ())
