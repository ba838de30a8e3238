"""The gate as a command: what it starts, what that gets of it, and the cases that it runs first."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import flow
import gated
import pytest
from conftest import TESTS

from harness import evidence, gate, needs, refusal, sources
from harness.errors import GateRefusedError
from harness.needs import Case, Request

PASSES = ["gate", "--tensor-parallel-size", "2"]
REFUSED = ["gate", "--tensor-parallel-size", "4"]


def _run(folder: Path, *arguments: str, **named: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TESTS / "gated.py"), str(folder), *arguments, "--evidence", str(folder)]
    if "--" in arguments:
        cut = command.index("--")
        command = [*command[:cut], *command[-2:], *command[cut:-2]]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, **named)


@pytest.mark.parametrize("status", [0, 1, 3, 77])
def test_exit_code_of_the_command_is_kept(tmp_path: Path, status: int) -> None:
    done = _run(tmp_path, *PASSES, "--", sys.executable, "-c", f"raise SystemExit({status})")
    assert done.returncode == status, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["a b", "", "--json", "--run-missing"], ["--", "x"], ["$HOME", "*", "a;b", "'"], ["--help"]],
    ids=["options of the gate", "another --", "no shell", "help"],
)
def test_arguments_reach_the_command_as_they_are(tmp_path: Path, arguments: list[str]) -> None:
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    done = _run(tmp_path, *PASSES, "--", sys.executable, "-c", code, *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == arguments


def test_command_has_the_environment_the_folder_and_stdout_for_itself(tmp_path: Path) -> None:
    code = "import os; print(os.environ['MARK'], os.getcwd())"
    done = _run(tmp_path, *PASSES, "--", sys.executable, "-c", code, env={**os.environ, "MARK": "kept"})
    assert done.stdout == f"kept {tmp_path}\n"
    assert re.match(r"covered: all \d+ cases that this run needs", done.stderr), done.stderr


def test_refused_command_is_not_started(tmp_path: Path) -> None:
    done = _run(tmp_path, *REFUSED, "--", "touch", "started")
    assert done.returncode == 3, done.stderr
    assert not (tmp_path / "started").exists()
    said = f"gate --tensor-parallel-size 4 --evidence {tmp_path} --run-missing -- touch started"
    assert said in done.stderr, done.stderr


def test_without_a_command_it_only_decides(tmp_path: Path) -> None:
    done = _run(tmp_path, *PASSES)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    said = r"covered: all \d+ cases that this run needs, on executor-mp-tp2, executor-tight-tp2\n"
    assert re.match(said, done.stdout), done.stdout
    assert _run(tmp_path, *REFUSED).returncode == 3


def test_json_is_all_that_is_on_stdout(tmp_path: Path) -> None:
    for arguments, code in ((PASSES, 0), (REFUSED, 3)):
        done = _run(tmp_path, *arguments, "--json")
        assert (done.returncode, json.loads(done.stdout)["passes"]) == (code, code == 0), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--max-age", "0"], "--max-age must be more than 0 days"),
        (["--layers", "2,x"], "--layers"),
        (["--tensor-parallel-size", "0"], "--tensor-parallel-size"),
        (["--client", "nobody"], "no client 'nobody'"),
    ],
)
def test_wrong_arguments_exit_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = _run(tmp_path, "gate", *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr, done.stderr


def test_command_that_cannot_be_started_exits_2(tmp_path: Path) -> None:
    done = _run(tmp_path, *PASSES, "--", "no-such-program")
    assert done.returncode == 2, done.stderr
    assert "no-such-program cannot be started: No such file or directory" in done.stderr, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "pathlib.Path('up').touch()\n"
        "time.sleep(60)"
    )
    process = subprocess.Popen(
        [
            *(sys.executable, str(TESTS / "gated.py"), str(tmp_path), *PASSES, "--evidence", str(tmp_path)),
            *("--", sys.executable, "-c", code),
        ],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "up").exists():
            assert process.poll() is None, process.returncode
            assert time.monotonic() < deadline, "the command is not up after 30 s"
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(20) == 42
    finally:
        process.kill()
        process.wait()


def test_command_ignores_no_signal_because_python_does(tmp_path: Path) -> None:
    done = _run(tmp_path, *PASSES, "--", "grep", "SigIgn", "/proc/self/status")
    ignored = int(done.stdout.split()[1], 16)
    # Others may be ignored by whoever started these tests, in the background say.
    assert [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored & (1 << (number - 1))] == []


# What is missing, run for real on a toy client.

SUITE = {
    "test_x.py": """
        import pytest

        def test_plain(): pass
        def test_a(engine): pass
        @pytest.mark.parametrize("which", ["one", "two"])
        def test_b(engine, which): pass
        def test_unneeded(engine): raise AssertionError("it ran")
        @pytest.mark.tight
        def test_c(engine): pass
    """
}
ROWS = (
    Case(name="test_x.py::test_plain", engine="none", why="plain"),
    Case(name="test_x.py::test_a", engine="ordinary", why="a"),
    Case(name="test_x.py::test_b", engine="ordinary", why="b", parameters=("one", "two")),
    Case(name="test_x.py::test_c", engine="tight", why="c", when="chunks"),
)
TOY = Request(client="toys:SOUND", executor_backend="mp")


@pytest.fixture
def toy_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    flow.use(monkeypatch, flow.write_suite(tmp_path / "suite", SUITE), [])
    monkeypatch.setattr(needs, "cases", lambda: ROWS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _cases(path: Path) -> dict[str, str]:
    return {case["id"].partition("::")[2]: case["outcome"] for case in evidence.read(path)["cases"]}


def test_exactly_what_is_missing_is_run_and_kept_beside_the_rest(
    toy_world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = gate.require(TOY, run_missing=True)
    (first,) = decision.files
    assert first.parent.parent == Path("results/0.16.0-cpu/gate")
    assert _cases(first) == {
        "test_plain": "passed",
        "test_a[toys:SOUND-mp-tp1]": "passed",
        "test_b[toys:SOUND-mp-tp1-one]": "passed",
        "test_b[toys:SOUND-mp-tp1-two]": "passed",
        "test_c[toys:SOUND-tight-mp-tp1]": "passed",
    }
    assert sorted(path.name for path in first.parent.iterdir() if path != first) == ["junit.xml", "logs"]
    # Another file's place is taken by nobody, and what is there is not run again.
    monkeypatch.setattr(needs, "cases", lambda: (*ROWS, Case(name="test_x.py::test_unneeded", engine="none", why="")))
    again = gate.decide(TOY)
    assert [gap.case for gap in again.missing] == ["test_x.py::test_unneeded"]
    assert (toy_world / first).exists()


def test_second_time_nothing_is_run(toy_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.require(TOY, run_missing=True)
    monkeypatch.setattr(gate, "run", lambda *_arguments, **_named: pytest.fail("something ran"))
    assert gate.require(TOY, run_missing=True).passes
    assert sorted(toy_world.glob("results/0.16.0-cpu/*")) == [toy_world / "results/0.16.0-cpu/gate"]


def test_what_is_run_goes_where_the_gate_looks(toy_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = toy_world / "elsewhere"
    place.mkdir()
    ran = gate.require(TOY, places=[place], run_missing=True)
    assert [path.is_relative_to(place) for path in ran.files] == [True], ran.files
    monkeypatch.setattr(gate, "run", lambda *_arguments, **_named: pytest.fail("something ran"))
    assert gate.require(TOY, places=[place], run_missing=True).passes
    # The line that closes it by hand, too.
    monkeypatch.setattr(needs, "cases", lambda: (*ROWS, Case(name="test_x.py::test_unneeded", engine="none", why="")))
    assert str(place / "gate" / "by-hand.json") in refusal.commands(gate.decide(TOY, places=[place]))[-1]


@pytest.mark.usefixtures("toy_world")
def test_only_the_cases_without_an_engine_can_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "cases", lambda: ROWS[1:])
    gate.require(TOY, run_missing=True)
    monkeypatch.setattr(needs, "cases", lambda: ROWS)
    decision = gate.require(TOY, run_missing=True)
    # Both ran within a second or two, and neither took the other's place or its logs.
    assert len({path.parent for path in decision.files}) == 2, decision.files
    (plain,) = [path for path in decision.files if "test_plain" in _cases(path)]
    assert _cases(plain) == {"test_plain": "passed"}
    assert evidence.read(plain)["engines"] == []


@pytest.mark.usefixtures("toy_world")
def test_case_that_fails_when_it_is_run_refuses_with_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Case(name="test_x.py::test_unneeded", engine="ordinary", why="it must not run")
    monkeypatch.setattr(needs, "cases", lambda: (*ROWS, broken))
    with pytest.raises(GateRefusedError, match="it failed: the case itself failed") as caught:
        gate.require(TOY, run_missing=True)
    assert "1 of 6 cases" in str(caught.value), caught.value
    assert "--run-missing" not in str(caught.value), caught.value


@pytest.mark.usefixtures("toy_world")
def test_touched_case_file_makes_what_was_run_stale() -> None:
    gate.require(TOY, run_missing=True)
    file = sources.suite() / "cases" / "test_x.py"
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(GateRefusedError, match="it is of another state of the suite"):
        gate.require(TOY)


def test_world_of_these_tests_is_complete(tmp_path: Path) -> None:
    world = gated.World(tmp_path)
    assert len(world.record.cases) == sum(len(need.ids) for need in world.needs().needs) > 50
    assert json.loads(json.dumps(world.record.as_dict()))["verdict"] == "conforms"
