"""What tests share."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def plain_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the pytest that runs these tests reaches the one that they start."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def handlers_kept() -> Iterator[None]:
    """The command line sets handlers of its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children can import ``toys``."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
