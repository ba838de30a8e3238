from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from conftest import TESTS

from harness import __version__, sources

if TYPE_CHECKING:
    from pathlib import Path


def test_suite_is_the_projects() -> None:
    assert sources.suite() == TESTS.parent


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own, with one case, and with snapshots of two releases."""
    for name in (
        "harness/report",
        "cases",
        *(f"snapshots/{kept}" for kept in ("0.15.1", "0.16.0", "mp-pp2/0.15.1", "mp-pp2/0.16.0", "0.16.0-v1")),
    ):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        *("harness/worker.py", "harness/releases.toml", "harness/report/page.py", "harness/report/page.css"),
        *("cases/test_x.py", "cases/pytest.toml", "snapshots/0.15.1/test_x.json", "snapshots/0.16.0/test_x.json"),
    ):
        (tmp_path / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(sources, "_PACKAGE", tmp_path / "harness")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("harness/worker.py", True),
        ("harness/releases.toml", True),
        ("harness/report/page.py", True),
        ("cases/test_x.py", True),
        ("cases/pytest.toml", True),
        ("cases/test_new.py", True),
        ("snapshots/0.16.0/test_x.json", True),
        ("snapshots/0.16.0/test_new.json", True),
        ("snapshots/0.15.1/test_x.json", False),
        ("snapshots/mp-pp2/0.16.0/test_x.json", True),
        ("snapshots/mp-pp2/0.15.1/test_x.json", False),
        ("snapshots/0.16.0-v1/test_x.json", True),
        ("harness/report/page.css", False),
        ("README.md", False),
    ],
)
def test_digest_changes_with_what_decides_an_outcome(copied: Path, name: str, counts: bool) -> None:
    before = sources.digest(copied, "0.16.0")
    assert before == sources.digest(copied, "0.16.0")
    (copied / name).write_text("changed", encoding="utf-8")
    assert (sources.digest(copied, "0.16.0") != before) == counts


def test_digest_changes_when_a_file_is_renamed(copied: Path) -> None:
    before = sources.digest(copied, "0.16.0")
    (copied / "cases" / "test_x.py").rename(copied / "cases" / "test_y.py")
    assert sources.digest(copied, "0.16.0") != before


def test_installed_copy_has_the_digest_of_its_project(copied: Path) -> None:
    before = sources.digest(copied, "0.16.0")
    for name in ("cases", "snapshots"):
        shutil.move(copied / name, copied / "harness" / "suite" / name)
    assert sources.digest(copied / "harness" / "suite", "0.16.0") == before


def test_a_python_of_ours_runs_ours_whatever_the_current_folder_holds(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    for name in ("select", "signal", "harness/__init__", "harness/__main__"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    done = subprocess.run(
        sources.python("harness", "--version"),
        env=sources.python_variables(),
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"harness {__version__}\n"), done
