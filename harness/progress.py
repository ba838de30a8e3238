"""What a person sees while the suite runs: a line when an engine starts, is up, and is done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .collector import case_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


class Progress:
    """A pytest plugin object for the controller; takes the place of a line a case, or of dots."""

    def __init__(self, groups: Iterable[str]) -> None:
        # Longest first: one name may begin with another.
        self._groups = sorted(groups, key=len, reverse=True)
        self._started: dict[str, float] = {}
        self._up: set[str] = set()
        self._config: pytest.Config | None = None
        self._begin = time.monotonic()

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        group = self._group_of(nodeid)
        if group is not None and group not in self._started:
            self._started[group] = time.monotonic()
            self._say(f"{group:<18} booting")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        group = self._group_of(report.nodeid)
        if group is not None and group not in self._up and report.when == "setup":
            self._up.add(group)
            took = time.monotonic() - self._started.get(group, self._begin)
            self._say(f"{group:<18} {'did not come up' if report.failed else 'is up'} after {took:.1f} s")
        if report.failed and (group is None or report.when != "setup"):
            self._say(f"FAILED {case_id(report.nodeid)}")

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if report.when == "call" or report.outcome != "passed":
            return report.outcome, "", ""
        return None

    def _group_of(self, nodeid: str) -> str | None:
        parameters = case_id(nodeid).partition("[")[2].rstrip("]")
        for group in self._groups:
            if parameters == group or parameters.startswith(f"{group}-"):
                return group
        return None

    def _say(self, line: str) -> None:
        assert self._config is not None
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"{time.monotonic() - self._begin:6.1f} s  {line}")
            reporter.flush()
