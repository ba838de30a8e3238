"""Turns pytest's reports into case results, in the one process that sees them all."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from .evidence import CaseResult, Outcome
from .writing import write_whole

if TYPE_CHECKING:
    from pathlib import Path


def case_id(nodeid: str) -> str:
    """A case's id: without the folder, and without the group that xdist appends."""
    return nodeid.rpartition("/")[2].partition("@")[0]


class Collector:
    """A pytest plugin object for the controller, with xdist or without.

    Writes ``{"engines": [...], "cases": [...]}`` when the session ends, in whatever way it ends.
    """

    def __init__(self, path: Path, engines: list[dict[str, Any]]) -> None:
        self._path = path
        self._engines = engines
        self._cases: dict[str, CaseResult] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = case_id(report.nodeid)
        before = self._cases.get(name)
        if before is None or report.when == "call" or report.outcome != "passed":
            seconds = report.duration + (before.seconds if before is not None else 0.0)
            self._cases[name] = _result(name, report, seconds)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A case file that cannot be imported is an error, not a file without cases."""
        if report.failed:
            name = case_id(report.nodeid)
            finding = {
                "expected": f"{name} to be imported",
                "got": report.longreprtext[-2000:],
                "cause": "the case file is broken, or this environment lacks what it imports",
                "advice": "read the last lines: they name the file and what is missing",
            }
            self._cases[name] = CaseResult(id=name, outcome="error", seconds=0.0, finding=finding)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of xdist has ended: take over what it knows about its engines."""
        self._engines.extend(getattr(node, "workeroutput", {}).get("harness_engines", []))

    def pytest_unconfigure(self) -> None:
        results = {"engines": self._engines, "cases": [asdict(case) for case in self._cases.values()]}
        write_whole(self._path, json.dumps(results))  # A second ^C kills this process.


def _result(name: str, report: pytest.TestReport, seconds: float) -> CaseResult:
    properties = dict(report.user_properties)
    finding = json.loads(str(properties["finding"])) if "finding" in properties else None
    outcome: Outcome
    reason = ""
    if report.passed:
        outcome = "passed"
    elif report.failed:
        outcome = "failed" if report.when == "call" else "error"
        if finding is None:
            finding = {
                "expected": "the case to run to its end",
                "got": report.longreprtext[-2000:],
                "cause": "the pytest process that ran it ended",
                "advice": "look for a crash or the kernel's out-of-memory killer in `dmesg`",
            }
    elif "not-applicable" in properties:
        outcome, reason = "not-applicable", str(properties["not-applicable"])
    elif hasattr(report, "wasxfail"):
        outcome, reason = "known-fault", str(report.wasxfail)
    else:
        outcome, reason = "skipped", report.longreprtext
    return CaseResult(id=name, outcome=outcome, seconds=round(seconds, 3), reason=reason, finding=finding)
