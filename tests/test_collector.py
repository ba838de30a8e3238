from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from harness.collector import Collector, case_id

if TYPE_CHECKING:
    from pathlib import Path

NAME = "cases/test_x.py::test_a[llm-uni-tp1]@llm-uni-tp1"


def _report(when: str, outcome: str, *, duration: float = 1.0, **more: Any) -> pytest.TestReport:
    return pytest.TestReport(
        **{
            "nodeid": NAME,
            "location": ("test_x.py", 1, "test_a"),
            "keywords": {},
            "outcome": outcome,
            "longrepr": None,
            "when": when,
            "duration": duration,
            **more,
        }
    )


def _collected(path: Path, *reports: pytest.TestReport, engines: tuple[Any, ...] = ()) -> dict[str, Any]:
    collector = Collector(path / "results.json", list(engines))
    for report in reports:
        collector.pytest_runtest_logreport(report)
    collector.pytest_unconfigure()
    results = json.loads((path / "results.json").read_text(encoding="utf-8"))
    assert isinstance(results, dict)
    return results


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        (NAME, "test_x.py::test_a[llm-uni-tp1]"),
        ("test_x.py::test_a", "test_x.py::test_a"),
        ("test_x.py::test_a@no engine", "test_x.py::test_a"),
    ],
)
def test_case_id_is_without_folder_and_group(nodeid: str, name: str) -> None:
    assert case_id(nodeid) == name


def test_the_call_decides_and_the_seconds_add_up(tmp_path: Path) -> None:
    reports = [_report(when, "passed", duration=0.5) for when in ("setup", "call", "teardown")]
    (case,) = _collected(tmp_path, *reports)["cases"]
    assert (case["id"], case["outcome"], case["seconds"]) == ("test_x.py::test_a[llm-uni-tp1]", "passed", 1.0)


@pytest.mark.parametrize(
    ("reports", "outcome"),
    [
        ([("setup", "passed"), ("call", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "failed"), ("teardown", "passed")], "error"),
        ([("setup", "passed"), ("call", "passed"), ("teardown", "failed")], "error"),
        ([("setup", "skipped"), ("teardown", "passed")], "skipped"),
    ],
)
def test_outcome_of_the_phases(tmp_path: Path, reports: list[tuple[str, str]], outcome: str) -> None:
    (case,) = _collected(tmp_path, *(_report(*report, longrepr="said") for report in reports))["cases"]
    assert case["outcome"] == outcome, case


def test_failure_without_a_finding_gets_one_with_what_was_said(tmp_path: Path) -> None:
    (case,) = _collected(tmp_path, _report("call", "failed", longrepr="worker 'gw1' crashed"))["cases"]
    assert case["finding"]["got"] == "worker 'gw1' crashed"
    assert "dmesg" in case["finding"]["advice"]


def test_finding_comes_from_the_report(tmp_path: Path) -> None:
    finding = {"expected": "4", "got": "771", "cause": "c", "advice": "a"}
    report = _report("call", "failed", user_properties=[("finding", json.dumps(finding))])
    assert _collected(tmp_path, report)["cases"][0]["finding"] == finding


def test_not_applicable_and_known_faults_carry_their_reason(tmp_path: Path) -> None:
    given = _report("call", "skipped", user_properties=[("not-applicable", "no steps()")])
    (case,) = _collected(tmp_path, given)["cases"]
    assert (case["outcome"], case["reason"]) == ("not-applicable", "no steps()")
    known = _report("call", "skipped")
    known.wasxfail = "a kernel"
    (case,) = _collected(tmp_path, known)["cases"]
    assert (case["outcome"], case["reason"]) == ("known-fault", "a kernel")


def test_engines_of_the_workers_are_taken_over(tmp_path: Path) -> None:
    collector = Collector(tmp_path / "results.json", [{"group": "ours"}])
    collector.pytest_testnodedown(SimpleNamespace(workeroutput={"harness_engines": [{"group": "theirs"}]}))
    collector.pytest_testnodedown(SimpleNamespace())
    collector.pytest_unconfigure()
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert written == {"engines": [{"group": "ours"}, {"group": "theirs"}], "cases": []}


def test_results_are_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: int) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        _collected(tmp_path, _report("call", "passed"))
    assert list(tmp_path.iterdir()) == []
