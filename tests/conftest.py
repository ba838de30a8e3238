"""What tests share.

Fixtures of one subject are in its helper; a file of tests takes them by name, as ``place = extracting.place``.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent

# An assertion of theirs that fails shows the values, as one of a test.
pytest.register_assert_rewrite("extracting", "fake_engine", "fake_releases")

# How long an example takes is the machine's affair: the limit of pytest-timeout is for what hangs.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(autouse=True, scope="session")
def plain_variables() -> Iterator[None]:
    """Nothing of the pytest that runs these tests reaches the one that they start, which may keep its bytecode."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in (
            *("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"),
            *("GITHUB_STEP_SUMMARY", "PYTHONDONTWRITEBYTECODE"),
        ):
            monkeypatch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True)
def handlers_kept() -> Iterator[None]:
    """The command line sets handlers of its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def dead() -> int:
    """The pid of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children can import ``toys``."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
