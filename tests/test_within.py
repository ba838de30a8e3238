from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import made
import pytest

from harness import processes, releases, within
from harness.environments import Environment
from harness.errors import NoCommandError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    path = made.environment(tmp_path, "0.21.0", eos=True, interpreter="echo interpreter of $VIRTUAL_ENV")
    return Environment(build=releases.find("0.21.0").build("cpu"), path=path, created=False, seconds=0.0)


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_the_environments_interpreter_comes_first(environment: Environment, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ended = within.run(environment, ["python", "-m", "pytest"], log=log)
    assert (ended.status, ended.timed_out) == (0, False)
    assert log.read_text(encoding="utf-8") == f"interpreter of {environment.path}\n"


def test_variables_are_the_releases_and_the_users_win(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    variables = within.variables(environment)
    assert variables["HF_HUB_OFFLINE"] == "0"
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == environment.build.environment["VLLM_CPU_KVCACHE_SPACE"]
    assert variables["VIRTUAL_ENV"] == str(environment.path)
    assert variables["PATH"].split(os.pathsep)[0] == str(environment.path / "bin")
    assert "PYTHONPATH" not in variables


@pytest.mark.parametrize(
    ("command", "status"), [("exit 0", 0), ("exit 3", 3), ("exit 125", 125), ("kill -SEGV $$", 128 + signal.SIGSEGV)]
)
def test_exit_status(environment: Environment, tmp_path: Path, command: str, status: int) -> None:
    assert within.run(environment, ["sh", "-c", command], log=tmp_path / "log").status == status


def test_both_streams_are_kept(environment: Environment, tmp_path: Path) -> None:
    log = tmp_path / "log"
    within.run(environment, ["sh", "-c", "echo one; echo two >&2; echo three"], log=log)
    assert log.read_text(encoding="utf-8") == "one\ntwo\nthree\n"
    assert within.tail(log, 2) == "two\nthree"
    assert within.tail(tmp_path / "none") == ""


def test_no_such_command_is_the_users(environment: Environment, tmp_path: Path) -> None:
    with pytest.raises(NoCommandError, match="'no-such-command' is no command"):
        within.run(environment, ["no-such-command"], log=tmp_path / "log")


def test_what_the_current_folder_holds_is_not_taken_for_ours(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository with a `harness` of its own, or a module named as one of Python's; the command sees them."""
    folder = tmp_path / "repository"
    (folder / "harness").mkdir(parents=True)
    for name in ("select", "json", "signal", "harness/__init__", "harness/keeper", "harness/processes"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    (folder / "mine.py").write_text("print('mine')\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    log = tmp_path / "log"
    said = "echo safe:$PYTHONSAFEPATH path:$PYTHONPATH"
    command = f"{said}; {sys.executable} -c 'import mine, sys; print(sys.flags.safe_path)'"
    ended = within.run(environment, ["sh", "-c", command], log=log)
    assert (ended.status, log.read_text(encoding="utf-8")) == (0, "safe: path:\nmine\nFalse\n")


@pytest.mark.parametrize("stubborn", [False, True], ids=["interrupted", "killed"])
def test_time_is_bounded(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    monkeypatch.setattr(within, "ENDING_SECONDS", 0.3 if stubborn else 20.0)
    log = tmp_path / "log"
    trap = "trap '' INT" if stubborn else "trap 'echo interrupted; exit 7' INT"
    ended = within.run(environment, ["sh", "-c", f"{trap}; while :; do sleep 0.05; done"], log=log, timeout=0.5)
    assert ended.timed_out
    assert ended.seconds < 10, ended
    assert ("interrupted" in log.read_text(encoding="utf-8")) != stubborn


def test_what_a_command_leaves_running_is_ended(environment: Environment, tmp_path: Path) -> None:
    log = tmp_path / "log"
    within.run(environment, ["sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"], log=log)
    left = int(log.read_text(encoding="utf-8"))
    assert processes.ended([left]) == [left]


def test_nothing_outlives_whoever_started_it(environment: Environment, tmp_path: Path) -> None:
    """Not even when that is killed, and can end nothing."""
    log = tmp_path / "log"
    code = (
        "import json, sys; from pathlib import Path; from harness import within;"
        "variables = json.loads(sys.argv[2]);"
        "running = within.Running(['sh', '-c', 'echo $$; sleep 300'], variables=variables, log=Path(sys.argv[1]));"
        "running.wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(log), json.dumps(within.variables(environment))])
    try:
        _wait(lambda: log.exists() and log.read_text(encoding="utf-8").endswith("\n"), "the command did not start")
        (command,) = map(int, log.read_text(encoding="utf-8").split())
        assert processes.ended([command]) == []
    finally:
        parent.kill()
        parent.wait()
    _wait(lambda: processes.ended([command]) == [command], f"process {command} still runs")
