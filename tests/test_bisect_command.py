"""`harness bisect` as a command: what can be asked, and what is answered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

import bisecting
import fake_check
import made
import pytest
import records
from bisecting import BROKEN, EOS, PASSED, SOUGHT

from harness import bisect, cli, environments, subjects
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from pathlib import Path

    from harness.journal import Observation
    from harness.releases import Build

results = bisecting.results


def test_a_command_of_the_users(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(bisecting.command(results, "--", *EOS)) == 0
    said = capsys.readouterr().out
    assert "0.24.0 is the first bad one; 0.23.0 is the last good one" in said
    assert "exit status 1: TypeError: Request.__init__() got an unexpected keyword argument 'eos_token_id'" in said
    assert "vLLM 0.23.0 -> 0.24.0: 1 changes" in said
    assert "Request.__init__: eos_token_id" in said
    assert len(bisecting.tested(results)) <= 5, bisecting.tested(results)


def test_another_failure_on_the_way_is_skipped(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROKEN", "0.23.0 0.25.1")
    assert cli.main(bisecting.command(results, "--json", "--failure", "eos_token_id", "--", *EOS)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["old"], answer["new"], answer["exact"]) == ("0.22.1", "0.24.0", False), answer
    (reason,) = answer["untested"].values()
    assert "exit status 1, without 'eos_token_id': ImportError: libsomething" in reason
    assert answer["before"] is None
    assert "eos_token_id" in answer["after"]["got"]
    assert [change["name"] for change in answer["changes"]] == ["Request.__init__"]


def test_125_cannot_be_tested(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skips = 'case "$VIRTUAL_ENV" in */0.2[67].?) exit 1;; */0.20.2) exit 0;; esac; exit 125'
    assert cli.main(bisecting.command(results, "--", "sh", "-c", skips)) == 0
    assert (
        "the first bad one is after 0.20.2, and 0.26.0 at the latest: these could not be tested"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (["--", "sh", "-c", "exit 125"], "0.23.0 was given as --good, and it cannot be tested: exit status 125"),
        (
            ["--failure", "block_size", "--", *EOS],
            "0.24.0 was given as --bad, and it cannot be tested: exit status 1, without",
        ),
        (
            ["--", "no-such-command"],
            "0.23.0 was given as --good, and it cannot be tested: 'no-such-command' is no command",
        ),
        (
            ["--timeout", "0.2", "--", "sleep", "60"],
            "0.23.0 was given as --good, and it cannot be tested: not done within 0.2 s",
        ),
    ],
)
def test_an_end_that_cannot_be_tested_exits_125(
    results: Path, capsys: pytest.CaptureFixture[str], wanted: list[str], said: str
) -> None:
    assert cli.main(bisecting.command(results, *wanted, good="0.23.0", bad="0.24.0")) == 125
    assert said in capsys.readouterr().err


def test_a_release_that_lacks_the_command_is_gone_around(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version in made.ROW:
        tool = results.parent / "environments" / version / "bin" / "my-tool"
        tool.write_text(f"#!/bin/sh\nexit {int(version >= '0.24.0')}\n", encoding="utf-8")
        tool.chmod(0o755 if version != "0.23.0" else 0o644)
    assert cli.main(bisecting.command(results, "--json", "--", "my-tool")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["old"], answer["new"], list(answer["untested"])) == ("0.22.1", "0.24.0", ["0.23.0"]), answer


def test_a_crash_is_another_failure_than_an_exit_status(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashes = 'case "$VIRTUAL_ENV" in */0.27.1) exit 1;; */0.26.0) kill -SEGV $$;; esac'
    assert cli.main(bisecting.command(results, "--", "sh", "-c", crashes, good="0.25.1")) == 0
    said = capsys.readouterr().out
    assert "0.26.0: failed, but not as the bad end does" in said
    assert "signal SIGSEGV" in said


@pytest.mark.parametrize("status", [2, 126, 128, 200, 255])
def test_any_other_exit_status_is_the_failure_sought(
    results: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    fails = f'case "$VIRTUAL_ENV" in */0.27.1) exit 1;; */0.26.0) exit {status};; esac'
    assert cli.main(bisecting.command(results, "--", "sh", "-c", fails, good="0.25.1")) == 0
    assert "0.26.0 is the first bad one" in capsys.readouterr().out


def test_a_case_held_to_what_the_good_release_did(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(bisecting.command(results, "--no-prune", "--case", fake_check.CASE)) == 0
    said = capsys.readouterr().out
    assert "0.24.0 is the first bad one; 0.23.0 is the last good one" in said
    assert "the structure of the case in 0.20.2/test_reply.json" in said
    (log,) = results.glob("bisect-*/0.24.0/output.log")
    wanted = f"-m harness check --device cpu -k test_reply.py and {fake_check.CASE.partition('::')[2]}"
    assert log.read_text(encoding="utf-8").startswith(wanted)


def test_what_a_search_leaves_is_no_row_of_a_report(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One case, held to another release: `harness report results` must not count it as a run of the suite."""
    records.write(results, "0.20.2", records.SOUND)
    assert cli.main(bisecting.command(results, "--no-prune", "--case", fake_check.CASE)) == 0
    assert list(results.rglob("case.json")), sorted(results.rglob("*"))
    capsys.readouterr()
    assert cli.main(["report", str(results), "--expect", "0.20.2", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["evidence"] == str(results / "0.20.2-cpu" / "evidence.json")


def test_releases_that_are_left_out_are_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From 0.20.2 on, this case and the few signatures in these environments are the same up to 0.23.0."""
    assert cli.main(bisecting.command(results, "--case", fake_check.CASE)) == 0
    said = capsys.readouterr().out
    assert "0.22.1: left out, nothing that was recorded for the case differs from 0.20.2" in said
    assert not list(results.glob("bisect-*/0.22.1"))
    assert "0.24.0 is the first bad one; 0.23.0 is the last good one\n0.23.0 was left out" in said
    assert "on 0.20.2\n  passed" in said
    assert "vLLM 0.23.0 -> 0.24.0: 1 changes" in said


@pytest.mark.parametrize(
    ("keys", "unknown", "old", "new", "tested"),
    [
        ("aaabbccc", [], "0.22.1", "0.23.0", ["0.20.2", "0.23.0", "0.27.1"]),
        ("aaabbccc", ["0.23.0"], "0.22.1", "0.24.0", ["0.20.2", "0.23.0", "0.24.0", "0.25.1", "0.27.1"]),
        ("abcdefgh", ["0.22.1"], "0.21.0", "0.23.0", ["0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.27.1"]),
        ("aaaaaaaa", [], "0.26.0", "0.27.1", ["0.20.2", "0.27.1"]),
    ],
    ids=["a twin before the step", "a twin of what cannot be told", "no twins", "the last of many twins"],
)
def test_the_step_is_between_neighbours_whatever_was_left_out(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    keys: str,
    unknown: list[str],
    old: str,
    new: str,
    tested: list[str],
) -> None:
    of = dict(zip(made.ROW, keys, strict=True))
    row = {version: PASSED if version < new else SOUGHT for version in made.ROW} | dict.fromkeys(unknown, BROKEN)
    asked: set[str] = set()

    def ask(_self: object, build: Build, _folder: Path) -> Observation:
        asked.add(build.release)
        return row[build.release]

    monkeypatch.setattr(subjects.CaseSubject, "needs_environment", False)
    monkeypatch.setattr(subjects.CaseSubject, "key", lambda _self, build: of[build.release])
    monkeypatch.setattr(subjects.CaseSubject, "ask", ask)
    assert cli.main(bisecting.command(results, "--json", "--case", fake_check.CASE)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["old"], answer["new"]) == (old, new), answer
    assert set(answer["untested"]) == set(unknown), answer
    assert not set(answer["left_out"]) & asked, answer
    assert asked == set(tested), sorted(asked)


def test_an_object_of_the_surface(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(bisecting.command(results, "--object", "Request.__init__")) == 0
    said = capsys.readouterr().out
    assert "0.24.0 is the first bad one" in said
    assert "parameter removed: eos_token_id" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--", "true"],
        ["--with", "a==1", "--with", "b", "--", "true"],
        ["--device", "cuda", "--with", "a", "--", "true"],
        ["--case", fake_check.CASE],
        ["--case", fake_check.CASE, "--client", "speculators-0.3.0", "--with", "a"],
    ],
    ids=" ".join,
)
def test_what_is_made_ahead_is_what_is_asked_for(
    results: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """Else each step makes two environments of every release, and waits for the second."""
    made_of: list[tuple[str, tuple[str, ...]]] = []
    commands: list[list[str]] = []

    def ensure(build: Build, *, requirements: tuple[str, ...]) -> NoReturn:
        made_of.append((build.requirement, tuple(requirements)))
        raise EnvironmentUnusableError("not now")

    def prepare(self: bisect.Bisection, _place: int, _stack: object) -> None:
        commands.append(self._ahead(self._builds[0]))

    monkeypatch.setattr(environments, "ensure", ensure)
    monkeypatch.setattr(bisect.Bisection, "_prepare", prepare)
    assert cli.main(bisecting.command(results, *arguments)) == 125
    (command,) = commands
    assert cli.main(command[command.index("harness") + 1 :]) == 4
    asked, ahead = made_of
    assert ahead == asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--good", "0.20.2", "--bad", "0.27.1"], "--case ID, --object NAME, or a command"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--case", "test_a.py::b", "--", "true"], "say what is to be asked"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--case", "nothing"], "is no case"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--object", "X", "--failure", "x"], "--failure is about"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--object", "Request.init"], "names it, Request.__init__"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--client", "llm", "--", "true"], "--client is a case's"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--timeout", "0", "--", "true"], "more than 0"),
        (["--good", "0.27.1", "--bad", "0.20.2", "--", "true"], "--find-fix looks for"),
        (["--good", "0.27.1", "--bad", "0.27.1", "--", "true"], "must be older"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--find-fix", "--", "true"], "leave out --find-fix"),
        (["--good", "0.20", "--bad", "0.27.1", "--", "true"], "did you mean 0.20.2"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--builds", "daily", "--", "true"], "no source of builds"),
        (["--good", "0.20.2", "--bad", "0.27.1", "--failure", "(", "--", "true"], "no pattern"),
    ],
    ids=lambda value: " ".join(value[4:]) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("results")
def test_wrong_usage_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert cli.main(["bisect", "--results", str(tmp_path / "results"), *arguments]) == 2
    assert said in capsys.readouterr().err
