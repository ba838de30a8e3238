from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.progress import Progress


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def progress(said: list[str]) -> Progress:
    reporter = SimpleNamespace(write_line=said.append, flush=lambda: None)
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=lambda _name: reporter))
    plugin = Progress(["executor-mp-tp1", "llm-mp-tp1"])
    plugin.pytest_configure(config)
    return plugin


def report(nodeid: str, when: str, outcome: str) -> Any:
    return SimpleNamespace(nodeid=nodeid, when=when, outcome=outcome, failed=outcome == "failed")


def test_an_engine_is_announced_once_and_once_more_when_it_is_up(progress: Progress, said: list[str]) -> None:
    for case in (
        "cases/test_a.py::test_x[executor-mp-tp1-layer0]@executor-mp-tp1",
        "test_a.py::test_y[executor-mp-tp1]",
    ):
        progress.pytest_runtest_logstart(case)
        progress.pytest_runtest_logreport(report(case, "setup", "passed"))
        progress.pytest_runtest_logreport(report(case, "call", "passed"))
    assert [line.split(" s  ")[1].split(" after")[0] for line in said] == [
        "executor-mp-tp1    booting",
        "executor-mp-tp1    is up",
    ], said


def test_an_engine_that_does_not_come_up_says_so_once(progress: Progress, said: list[str]) -> None:
    for case in ("test_a.py::test_x[llm-mp-tp1]", "test_a.py::test_y[llm-mp-tp1]"):
        progress.pytest_runtest_logstart(case)
        progress.pytest_runtest_logreport(report(case, "setup", "failed"))
    assert len(said) == 2, said
    assert "llm-mp-tp1         did not come up" in said[1], said


def test_a_failed_case_is_named_at_once(progress: Progress, said: list[str]) -> None:
    progress.pytest_runtest_logreport(report("cases/test_a.py::test_plain", "call", "failed"))
    assert said[0].endswith("FAILED test_a.py::test_plain"), said


def test_passed_cases_leave_no_letter(progress: Progress) -> None:
    status = progress.pytest_report_teststatus(report("a", "call", "passed"))
    assert status == ("passed", "", ""), status
