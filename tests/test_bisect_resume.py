"""Searches that are cut off: what the next one takes up, and what it asks anew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import bisecting
import fake_check
import pytest
from bisecting import EOS
from conftest import TESTS

from harness import cli, environments, processes, sources, subjects, wheels
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.releases import Build

results = bisecting.results


def _start(results: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *bisecting.command(results, *arguments, "--", *EOS)],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_cut_off_in_the_middle_it_leaves_nothing_running_and_repeats_no_finished_step(
    results: Path, number: signal.Signals
) -> None:
    tested = results.parent / "tested"
    running = _start(results, SLOW="0.23.0")
    _wait(lambda: tested.exists() and "0.23.0" in bisecting.tested(results), "0.23.0 was never tested")
    assert bisecting.tested(results) == ["0.20.2", "0.27.1", "0.23.0"]
    command = int(tested.read_text(encoding="utf-8").split()[-1])
    running.send_signal(number)
    said, _ = running.communicate(timeout=30)
    assert running.returncode == (130 if number != signal.SIGKILL else -number), said
    _wait(lambda: processes.ended([command]) == [command], f"process {command} still runs")

    tested.unlink()
    again = _start(results)
    said, _ = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert "going on after an interruption, with what is known of 0.20.2, 0.27.1" in said
    assert bisecting.tested(results)[0] == "0.23.0", said
    assert not {"0.20.2", "0.27.1"} & set(bisecting.tested(results)), bisecting.tested(results)
    assert "0.24.0 is the first bad one; 0.23.0 is the last good one" in said
    assert not list(results.glob("bisect-*/state.json")), "an answered question is asked anew the next time"


def test_fresh_forgets_what_is_known(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = bisecting.command(results, "--fresh", "--", *EOS, good="0.23.0", bad="0.24.0")
    assert cli.main(command) == 0
    (folder,) = results.glob("bisect-*")
    (folder / "state.json").write_text("torn", encoding="utf-8")
    assert cli.main([word for word in command if word != "--fresh"]) == 2
    assert "--fresh" in capsys.readouterr().err
    assert cli.main(command) == 0


FILES = ("eos.py", "tests/test_a.py", "tests/deep/data.toml", "tests/.hidden/x.py", "tests/left.json", "mine/mine.py")


@pytest.mark.parametrize(
    ("command", "requirements", "counts"),
    [
        (["python", "eos.py"], [], {"eos.py"}),
        (["python", "-m", "pytest", "tests"], [], {"tests/test_a.py", "tests/deep/data.toml"}),
        (
            ["pytest", "tests/test_a.py::test_a", "--rootdir=tests/deep"],
            [],
            {"tests/test_a.py", "tests/deep/data.toml"},
        ),
        (["cat", "tests/left.json"], [], {"tests/left.json"}),
        (["true"], ["./mine"], {"mine/mine.py"}),
        (["true"], ["mine[x] @ file://{here}/mine", "a==1"], {"mine/mine.py"}),
        (["sh", "-c", "x" * 9999], ["a==1"], set()),
    ],
)
def test_what_was_edited_is_another_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], requirements: list[str], counts: set[str]
) -> None:
    """What a resumed search takes up is about the files as they were."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    needed = [requirement.format(here=tmp_path) for requirement in requirements]
    subject = subjects.CommandSubject(command=command, requirements=needed)
    before = subject.question()
    assert subject.question() == before
    changed = set()
    for name in FILES:
        (tmp_path / name).write_text("after", encoding="utf-8")
        if subject.question() != before:
            changed.add(name)
        (tmp_path / name).write_text("before", encoding="utf-8")
    assert changed == counts
    assert subject.question() == before


def test_a_case_of_another_state_of_the_suite_is_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    case = subjects.CaseSubject(case=fake_check.CASE, client=None, device="cpu", snapshots_of="0.11.0")
    before = case.question()
    held_to: list[str] = []

    def changed(_suite: Path, snapshots: str) -> str:
        held_to.append(snapshots)
        return "changed"

    monkeypatch.setattr(sources, "digest", changed)
    assert case.question() != before
    replace(case, device="cuda").question()
    assert held_to == ["0.11.0", "0.11.0-cuda"]


@pytest.mark.parametrize(
    "wanted",
    [["--", *EOS], ["--case", fake_check.CASE, "--no-prune"], ["--object", "Request.__init__"]],
    ids=["command", "case", "object"],
)
def test_what_could_not_be_had_is_asked_again(
    results: Path, monkeypatch: pytest.MonkeyPatch, wanted: list[str]
) -> None:
    """A search that is cut off after it goes on with what it knows, and a disk that was full is no knowledge."""
    ensure, surface_of = environments.ensure, wheels.surface_of
    asked: list[str] = []

    def full(build: Build, **named: Any) -> Any:
        asked.append(build.release)
        if build.release == "0.25.1":
            raise KeyboardInterrupt
        if build.release == "0.23.0":
            raise EnvironmentUnusableError("the disk is full")
        return ensure(build, **named) if named else surface_of(build)

    monkeypatch.setattr(environments, "ensure", lambda build, requirements: full(build, requirements=requirements))
    if "--object" in wanted:
        monkeypatch.setattr(wheels, "surface_of", full)
    assert cli.main(bisecting.command(results, *wanted)) == 130
    (state,) = results.glob("bisect-*/state.json")
    assert list(json.loads(state.read_text(encoding="utf-8"))["seen"]) == ["0.20.2", "0.27.1"], asked
    assert "0.23.0" in asked


def test_a_command_that_was_not_there_is_looked_for_again(results: Path) -> None:
    subject = subjects.CommandSubject(command=["no-such-command"])
    results.mkdir()
    assert subject.ask(bisecting.builds("0.21.0")[0], results).lasting is False


def test_the_same_search_twice_at_once_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each would remove the folders that the other writes to; another question goes on."""
    command = bisecting.command(results, "--", *EOS, good="0.23.0", bad="0.24.0")
    running = _start(results, SLOW="0.20.2")
    try:
        _wait((results.parent / "tested").exists, "0.20.2 was never tested")
        assert cli.main(bisecting.command(results, "--", *EOS)) == 2
        assert "which another process has under way: wait for it, or end it" in capsys.readouterr().err
        assert cli.main(command) == 0
    finally:
        running.terminate()
        running.communicate()
    assert cli.main(bisecting.command(results, "--", *EOS)) == 0
