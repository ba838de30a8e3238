"""A search of `harness bisect` over releases that look made: what it may see, and what it tested."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import made
import pytest
from conftest import TESTS

from harness import releases
from harness.findings import Finding
from harness.journal import Observation

if TYPE_CHECKING:
    from pathlib import Path

    from harness.releases import Build

EOS = [sys.executable, str(TESTS / "request_takes_eos.py")]
PASSED = Observation(outcome="passed", seconds=2.0)
BROKEN = Observation(outcome="untestable", reason="the disk is full")


def failed(got: str) -> Observation:
    return Observation(outcome="failed", finding=Finding(expected="it to work", got=got, cause="", advice=""))


SOUGHT = failed("one list less: [5, 64] in /a/0.22.1/lib/x.py")


def builds(*versions: str) -> list[Build]:
    return [releases.find(version).build("cpu") for version in versions or made.ROW]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A row of environments, of which 0.24.0 and later have no ``eos_token_id``."""
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TESTED", str(tmp_path / "tested"))
    made.row(tmp_path / "environments", first_without="0.24.0")
    return tmp_path / "results"


def command(results: Path, *arguments: str, good: str = "0.20.2", bad: str = "0.27.1") -> list[str]:
    return ["bisect", "--good", good, "--bad", bad, "--results", str(results), *arguments]


def tested(results: Path) -> list[str]:
    return [line.split()[0] for line in (results.parent / "tested").read_text(encoding="utf-8").splitlines()]
