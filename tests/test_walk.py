from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flow
import pytest
import toys
from conftest import TESTS

from harness.errors import ClientError
from harness.findings import BrokenPromiseError
from harness.walk import Failure, Walk, explained_by, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REPAIRS = toys.REPAIRS


def code_that_needs(*names: str) -> Callable[[tuple[str, ...]], str]:
    """Code that fails on the first of these that is not repaired, and in another way where one was gone past."""

    def attempt(applied: tuple[str, ...]) -> str:
        for name in names:
            if name == "wiring" and "shortcut" in applied:
                return "sparks"
            if name not in applied:
                return f"no {name}"
        return ""

    return attempt


def test_sound_code_meets_nothing() -> None:
    assert walk(code_that_needs(), REPAIRS, ("stand-in",)) == Walk(applied=("stand-in",))


def test_each_failure_is_met_with_the_ones_before_it_repaired() -> None:
    walked = walk(code_that_needs("wheel", "wiring"), REPAIRS, ("stand-in",))
    assert walked.failures == {
        "wheel": Failure(applied=("stand-in",), error="no wheel"),
        "wiring": Failure(applied=("stand-in", "wheel"), error="no wiring"),
        "shortcut": Failure(applied=("stand-in", "wheel", "shortcut"), error="sparks"),
    }
    assert walked.applied == ("stand-in", "wheel", "wiring")
    assert not walked.unexplained


def test_order_is_that_of_the_failures_and_not_of_the_list() -> None:
    assert walk(code_that_needs("wiring", "wheel"), REPAIRS, ()).applied == ("wiring", "wheel")


def test_failure_without_a_repair_ends_the_walk() -> None:
    walked = walk(code_that_needs("wheel", "roof"), REPAIRS, ())
    assert walked.unexplained == "no roof"
    assert list(walked.failures) == ["wheel"]


def test_repair_that_does_not_help_is_applied_once() -> None:
    walked = walk(lambda _applied: "no wheel", REPAIRS, ())
    assert walked.unexplained == "no wheel"
    assert walked.applied == ("wheel",)


def test_known_failure_is_explained_by_its_repair() -> None:
    error = explained_by(REPAIRS, Failure(applied=("stand-in",), error="no wheel"), ClientError("no wheel"))
    assert isinstance(error, BrokenPromiseError)
    assert error.finding.as_dict() == {
        "expected": "to open and to capture twice, with stand-in in place",
        "got": "no wheel",
        "cause": "the wheel is gone",
        "advice": "mount the wheel",
    }


def test_unknown_failure_stays_what_it_is() -> None:
    error = ClientError("no roof")
    assert explained_by(REPAIRS, Failure(applied=(), error="no roof"), error) is error


# The whole way, on a toy client.

ENGINE = """
    def test_engine(engine):
        pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    repairs = (TESTS.parent / "cases" / "test_repairs.py").read_text(encoding="utf-8")
    return flow.write_suite(tmp_path, {"test_x.py": ENGINE, "test_repairs.py": repairs})


def by_id(record: dict[str, Any]) -> dict[str, str]:
    return {case["id"].partition("[")[2].rstrip("]"): case["outcome"] for case in record["cases"]}


def test_client_as_it_comes_is_never_a_pass(suite: Path) -> None:
    code, record = flow.run(suite, flow.groups("toys:BROKEN", 2))
    assert (code, record["verdict"]) == (1, "findings")
    assert by_id(record) == {
        "toys:BROKEN-mp-tp1-walk-wheel": "failed",
        "toys:BROKEN-mp-tp1-walk-wiring": "failed",
        "toys:BROKEN-mp-tp1-walk-shortcut": "failed",
        "toys:BROKEN-mp-tp1-walk-unneeded": "passed",
        "toys:BROKEN-mp-tp1-walk": "passed",
        "toys:BROKEN-mp-tp2": "error",
        "toys:BROKEN-mp-tp1": "error",
    }
    errors = [case for case in record["cases"] if case["outcome"] == "error"]
    assert {case["finding"]["advice"] for case in errors} == {"mount the wheel"}


def test_a_repair_that_was_not_reached_is_not_shown_to_be_unneeded(suite: Path) -> None:
    code, record = flow.run(suite, flow.groups("toys:PUZZLING"))
    assert (code, record["verdict"]) == (1, "findings")
    outcomes = by_id(record)
    assert outcomes["toys:PUZZLING-mp-tp2-walk-wheel"] == "failed", outcomes
    unreached = {name: outcomes[f"toys:PUZZLING-mp-tp2-walk-{name}"] for name in ("wiring", "shortcut", "unneeded")}
    assert set(unreached.values()) == {"not-applicable"}, unreached
    assert outcomes["toys:PUZZLING-mp-tp2-walk"] == "failed", outcomes


def test_evidence_lists_what_was_repaired(suite: Path) -> None:
    code, record = flow.run(suite, flow.groups("toys:MENDED"))
    assert (code, record["verdict"]) == (0, "conforms")
    listed = {engine["group"]: engine["spec"]["repairs"] for engine in record["engines"]}
    assert set(listed) == {"toys:MENDED-mp-tp2", "toys:MENDED-mp-tp2-walk"}
    assert list(listed.values()) == [["stand-in", "wheel", "wiring"]] * 2


def test_without_a_repairable_client_there_is_no_walk(suite: Path) -> None:
    code, record = flow.run(suite, flow.groups("toys:SOUND"))
    assert code == 0
    assert by_id(record) == {"toys:SOUND-mp-tp2": "passed"}
