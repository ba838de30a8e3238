from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from test_collector import _report

from harness.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable


class Reporter:
    """The terminal, and the one plugin of its configuration."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pluginmanager = self

    def getplugin(self, _name: str) -> Reporter:
        return self

    def write_line(self, line: str) -> None:
        self.lines.append(" ".join(line.partition(" s  ")[2].split()))

    def flush(self) -> None:
        pass


@pytest.fixture
def started() -> Callable[..., tuple[Progress, Reporter]]:
    def start(*groups: str) -> tuple[Progress, Reporter]:
        progress, reporter = Progress(groups), Reporter()
        progress.pytest_configure(cast("pytest.Config", reporter))
        return progress, reporter

    return start


def test_an_engine_is_told_of_once_when_it_starts_and_when_it_is_up(started: Any) -> None:
    progress, reporter = started("llm-uni-tp1", "llm-mp-tp2")
    for name in ("test_a[llm-uni-tp1]", "test_b[llm-uni-tp1-layer3]", "test_c"):
        nodeid = f"cases/test_x.py::{name}"
        progress.pytest_runtest_logstart(nodeid)
        progress.pytest_runtest_logreport(_report("setup", "passed", nodeid=nodeid))
        progress.pytest_runtest_logreport(_report("call", "passed", nodeid=nodeid))
    first, second = reporter.lines
    assert first == "llm-uni-tp1 booting"
    assert second.startswith("llm-uni-tp1 is up after"), second


def test_an_engine_whose_name_begins_with_anothers_is_told_of_by_its_own(started: Any) -> None:
    progress, reporter = started("executor-mp-tp2", "executor-mp-tp2-kimi-k25")
    for name in ("test_a[executor-mp-tp2-kimi-k25-layer3]", "test_a[executor-mp-tp2-layer3]"):
        progress.pytest_runtest_logstart(f"cases/test_x.py::{name}")
    assert reporter.lines == ["executor-mp-tp2-kimi-k25 booting", "executor-mp-tp2 booting"]


def test_an_engine_that_does_not_come_up_is_told_of_once(started: Any) -> None:
    progress, reporter = started("llm-uni-tp1")
    for name in ("test_a", "test_b"):
        nodeid = f"test_x.py::{name}[llm-uni-tp1]"
        progress.pytest_runtest_logstart(nodeid)
        progress.pytest_runtest_logreport(_report("setup", "failed", nodeid=nodeid))
    assert len(reporter.lines) == 2, reporter.lines
    assert reporter.lines[1].startswith("llm-uni-tp1 did not come up after"), reporter.lines


def test_a_failed_case_is_told_of_at_once(started: Any) -> None:
    progress, reporter = started("llm-uni-tp1")
    progress.pytest_runtest_logreport(_report("call", "failed", nodeid="cases/test_x.py::test_a@no engine"))
    assert reporter.lines == ["FAILED test_x.py::test_a"]
