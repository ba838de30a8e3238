from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import fake_check
import made
import pytest
import records
from conftest import TESTS

from harness import bisect, cli, environments, processes, releases, sources, subjects, wheels
from harness.errors import CannotTestError, EnvironmentUnusableError, UsageError
from harness.findings import Finding
from harness.journal import Journal, Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.releases import Build

EOS = [sys.executable, str(TESTS / "request_takes_eos.py")]
PASSED = Observation(outcome="passed", seconds=2.0)
BROKEN = Observation(outcome="untestable", reason="the disk is full")


def _failed(got: str) -> Observation:
    return Observation(outcome="failed", finding=Finding(expected="it to work", got=got, cause="", advice=""))


SOUGHT = _failed("one list less: [5, 64] in /a/0.22.1/lib/x.py")


@dataclass(frozen=True, kw_only=True)
class Told(subjects.CaseSubject):
    """A case whose answers are known; as everywhere, a failure is the same whatever its numbers."""

    needs_environment: ClassVar[bool] = False

    case: str = "test_x.py::test_x"
    client: str | None = None
    device: releases.Device = "cpu"
    snapshots_of: str = "0.20.2"
    answers: Mapping[str, Observation]
    tested: list[str] = field(default_factory=list)

    def ask(self, build: Build, folder: Path) -> Observation:
        assert list(folder.iterdir()) == []
        self.tested.append(build.release)
        return self.answers[build.release]


@dataclass(frozen=True, kw_only=True)
class Installed(Told):
    """The same, in an environment."""

    needs_environment: ClassVar[bool] = True


def _builds(*versions: str) -> list[Build]:
    return [releases.find(version).build("cpu") for version in versions or made.ROW]


def _search(
    folder: Path, answers: Mapping[str, Observation], *, find_fix: bool = False, ahead: list[str] | None = None
) -> tuple[bisect.Found, list[str], list[str]]:
    """What was found, what was tested in order, and what a person saw."""
    subject = Told(answers=answers) if ahead is None else Installed(answers=answers)
    said: list[str] = []

    def prepare(build: Build) -> list[str]:
        assert ahead is not None, f"made an environment of {build.release}"
        ahead.append(f"{build.release} before {len(subject.tested)}")
        return ["true"]

    found = bisect.Bisection(
        _builds(),
        subject,
        find_fix=find_fix,
        journal=Journal(folder / "state.json", {}),
        folder=folder,
        ahead=prepare,
        say=said.append,
    ).run()
    return found, subject.tested, said


def _row(first: str, before: Observation = PASSED, after: Observation = SOUGHT, **others: Observation) -> Any:
    place = made.ROW.index(first)
    row = {version: before if number < place else after for number, version in enumerate(made.ROW)}
    return row | {name.removeprefix("v").replace("_", "."): seen for name, seen in others.items()}


@pytest.mark.parametrize("first", made.ROW[1:])
def test_it_names_the_first_bad_release_in_few_environments(tmp_path: Path, first: str) -> None:
    found, tested, _said = _search(tmp_path, _row(first))
    assert (found.new.release, found.old.release) == (first, made.ROW[made.ROW.index(first) - 1])
    assert found.as_dict()["exact"] is True
    assert tested[:2] == [made.ROW[0], made.ROW[-1]], tested
    assert len(tested) <= 3 + 2, tested


def test_find_fix_names_the_first_good_one(tmp_path: Path) -> None:
    found, _tested, _said = _search(tmp_path, _row("0.23.0", before=SOUGHT, after=PASSED), find_fix=True)
    assert (found.old.release, found.new.release) == ("0.22.1", "0.23.0")
    lines = bisect.lines(found, find_fix=True)
    assert lines[0] == "0.23.0 is the first good one; 0.22.1 is the last bad one"


def test_the_same_failure_with_other_numbers_and_folders_is_the_one_sought(tmp_path: Path) -> None:
    elsewhere = _failed("one list less: [17, 64] in /b/0.23.0/lib/x.py")
    found, _tested, _said = _search(tmp_path, _row("0.22.1", v0_22_1=elsewhere, v0_23_0=elsewhere))
    assert found.new.release == "0.22.1"


@pytest.mark.parametrize(
    "other", [BROKEN, _failed("ImportError: libsomething.so.1")], ids=["untestable", "different"]
)
def test_what_cannot_be_told_widens_the_answer_and_is_named(tmp_path: Path, other: Observation) -> None:
    found, _tested, _said = _search(tmp_path, _row("0.24.0", v0_23_0=other, v0_22_1=other))
    assert (found.old.release, found.new.release) == ("0.21.0", "0.24.0")
    assert found.as_dict()["exact"] is False
    lines = bisect.lines(found, find_fix=False)
    assert lines[0] == "the first bad one is after 0.21.0, and 0.24.0 at the latest: these could not be tested"
    reason = "the disk is full" if other is BROKEN else "failed, but not as the bad end does: Import"
    assert lines[1].startswith(f"  0.22.1: {reason}"), lines
    assert lines[2].startswith(f"  0.23.0: {reason}"), lines


def test_what_cannot_be_told_elsewhere_does_not(tmp_path: Path) -> None:
    found, _tested, _said = _search(tmp_path, _row("0.26.0", v0_23_0=BROKEN))
    assert (found.old.release, found.new.release, found.untested) == ("0.25.1", "0.26.0", {})


@pytest.mark.parametrize(
    ("row", "find_fix", "error", "said"),
    [
        (
            _row("0.21.0", v0_20_2=SOUGHT),
            False,
            UsageError,
            "0.20.2 was given as --good, and it failed: one list less",
        ),
        (_row("0.21.0", v0_27_1=PASSED), False, UsageError, "0.27.1 was given as --bad, and it passed in 2 s"),
        (
            _row("0.21.0", v0_20_2=BROKEN),
            False,
            CannotTestError,
            "0.20.2 was given as --good, and it cannot be tested",
        ),
        (
            _row("0.21.0", v0_27_1=BROKEN),
            False,
            CannotTestError,
            "0.27.1 was given as --bad, and it cannot be tested",
        ),
        (_row("0.21.0"), True, UsageError, "0.20.2 was given as --bad, and it passed"),
        (_row("0.21.0", before=SOUGHT), True, UsageError, "0.27.1 was given as --good, and it failed"),
    ],
)
def test_wrong_ends_are_found_first(
    tmp_path: Path, row: Mapping[str, Observation], find_fix: bool, error: type[UsageError], said: str
) -> None:
    with pytest.raises(error, match=said):
        _search(tmp_path, row, find_fix=find_fix)
    assert not (tmp_path / "state.json").exists()


def test_it_says_how_many_are_left(tmp_path: Path) -> None:
    _found, _tested, said = _search(tmp_path, _row("0.23.0"))
    left = [int(line.split("at most ")[1].split()[0]) for line in said if line.startswith("testing")]
    assert left == [5, 4, 3, 2, 1], said


def test_the_environments_of_the_next_step_are_made_while_one_is_tested(tmp_path: Path) -> None:
    """Both that it may need: while 0.23.0 is tested, those in the middle of either half."""
    ahead: list[str] = []
    _found, tested, _said = _search(tmp_path, _row("0.21.0"), ahead=ahead)
    assert tested == ["0.20.2", "0.27.1", "0.23.0", "0.21.0"]
    assert ahead == ["0.27.1 before 0", "0.23.0 before 1", "0.25.1 before 2", "0.21.0 before 2", "0.22.1 before 3"]


def test_the_state_is_whole_after_every_step_and_is_taken_up(tmp_path: Path) -> None:
    """Killed after any step: what was tested then is not tested again, and the answer is the same."""
    row = _row("0.25.1", v0_23_0=BROKEN)
    _found, whole, _said = _search(tmp_path / "whole", row)
    for steps in range(len(whole)):
        journal = Journal(tmp_path / str(steps) / "state.json", {})
        for version in whole[:steps]:
            journal.note(version, row[version])
        found, tested, _said = _search(tmp_path / str(steps), row)
        assert found.new.release == "0.25.1"
        assert tested == whole[steps:]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"seen": {"0.21.0": {}}, "question": {}}', '{"seen": {}, "question": 1}']
)
def test_a_state_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="--fresh"):
        Journal(tmp_path / "state.json", {})


# What is left out.


@dataclass(frozen=True, kw_only=True)
class Keyed(Told):
    answers: Mapping[str, Observation] = field(default_factory=dict)
    keys: Mapping[str, str | None]

    def key(self, build: Build) -> str | None:
        return self.keys[build.release]


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ("abbcd", ["0.20.2", "0.21.0", "0.23.0", "0.24.0"]),
        ("aaaab", ["0.20.2", "0.24.0"]),
        ("abbbb", ["0.20.2", "0.21.0", "0.24.0"]),
        ("a--b-", list(made.ROW[:5])),
        ("ababa", list(made.ROW[:5])),
    ],
)
def test_a_release_that_cannot_differ_from_the_one_before_is_left_out(keys: str, kept: list[str]) -> None:
    row = made.ROW[: len(keys)]
    of = {version: None if key == "-" else key for version, key in zip(row, keys, strict=True)}
    left, same_as = bisect.prune(_builds(*row), Keyed(keys=of))
    assert [build.release for build in left] == kept
    assert set(same_as) == set(row) - set(kept)
    assert all(of[name] == of[other] for name, other in same_as.items()), same_as


def test_what_was_recorded_and_what_the_client_relies_on_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.11.0 replied with a list of one; 0.11.1 and 0.11.2 with the bare value, through the same signatures."""
    surfaces: dict[str, Any] = {"0.11.2": {}, "0.11.1": {}, "0.11.0": {}}
    monkeypatch.setattr(wheels, "surface_of", lambda build: surfaces[build.release])
    case = subjects.CaseSubject(case=fake_check.CASE, client=None, device="cpu", snapshots_of="0.11.0")
    old, first, second = (case.key(build) for build in _builds("0.11.0", "0.11.1", "0.11.2"))
    assert old != first == second
    assert first is not None


@pytest.mark.parametrize(
    ("case", "client"),
    [
        ("test_values.py::test_values[executor-mp-tp2-prompt0-layer0]", None),
        ("test_reply.py::test_first_rank[mine:CLIENT-mp-tp2]", "mine:CLIENT"),
    ],
    ids=["values", "a client of the user's"],
)
def test_a_case_that_looks_at_more_than_structure_is_never_left_out(case: str, client: str | None) -> None:
    subject = subjects.CaseSubject(case=case, client=client, device="cpu", snapshots_of="0.11.0")
    assert subject.key(_builds("0.16.0")[0]) is None


def test_a_surface_that_cannot_be_had_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_build: Build) -> None:
        raise EnvironmentUnusableError("no network")

    monkeypatch.setattr(wheels, "surface_of", fail)
    case = subjects.CaseSubject(case=fake_check.CASE, client=None, device="cpu", snapshots_of="0.11.0")
    assert case.key(_builds("0.16.0")[0]) is None


# The command.


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A row of environments, of which 0.24.0 and later have no ``eos_token_id``."""
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TESTED", str(tmp_path / "tested"))
    made.row(tmp_path / "environments", first_without="0.24.0")
    return tmp_path / "results"


def _command(results: Path, *arguments: str, good: str = "0.20.2", bad: str = "0.27.1") -> list[str]:
    return ["bisect", "--good", good, "--bad", bad, "--results", str(results), *arguments]


def _tested(results: Path) -> list[str]:
    return [line.split()[0] for line in (results.parent / "tested").read_text(encoding="utf-8").splitlines()]


def test_a_command_of_the_users(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(_command(results, "--", *EOS)) == 0
    said = capsys.readouterr().out
    assert "0.24.0 is the first bad one; 0.23.0 is the last good one" in said
    assert "exit status 1: TypeError: Request.__init__() got an unexpected keyword argument 'eos_token_id'" in said
    assert "vLLM 0.23.0 -> 0.24.0: 1 changes" in said
    assert "Request.__init__: eos_token_id" in said
    assert len(_tested(results)) <= 5, _tested(results)


def test_another_failure_on_the_way_is_skipped(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROKEN", "0.23.0 0.25.1")
    assert cli.main(_command(results, "--json", "--failure", "eos_token_id", "--", *EOS)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["old"], answer["new"], answer["exact"]) == ("0.22.1", "0.24.0", False), answer
    (reason,) = answer["untested"].values()
    assert "exit status 1, without 'eos_token_id': ImportError: libsomething" in reason
    assert answer["before"] is None
    assert "eos_token_id" in answer["after"]["got"]
    assert [change["name"] for change in answer["changes"]] == ["Request.__init__"]


def test_125_cannot_be_tested(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skips = 'case "$VIRTUAL_ENV" in */0.2[67].?) exit 1;; */0.20.2) exit 0;; esac; exit 125'
    assert cli.main(_command(results, "--", "sh", "-c", skips)) == 0
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
    assert cli.main(_command(results, *wanted, good="0.23.0", bad="0.24.0")) == 125
    assert said in capsys.readouterr().err


def test_a_release_that_lacks_the_command_is_gone_around(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version in made.ROW:
        tool = results.parent / "environments" / version / "bin" / "my-tool"
        tool.write_text(f"#!/bin/sh\nexit {int(version >= '0.24.0')}\n", encoding="utf-8")
        tool.chmod(0o755 if version != "0.23.0" else 0o644)
    assert cli.main(_command(results, "--json", "--", "my-tool")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["old"], answer["new"], list(answer["untested"])) == ("0.22.1", "0.24.0", ["0.23.0"]), answer


def test_a_crash_is_another_failure_than_an_exit_status(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashes = 'case "$VIRTUAL_ENV" in */0.27.1) exit 1;; */0.26.0) kill -SEGV $$;; esac'
    assert cli.main(_command(results, "--", "sh", "-c", crashes, good="0.25.1")) == 0
    said = capsys.readouterr().out
    assert "0.26.0: failed, but not as the bad end does" in said
    assert "signal SIGSEGV" in said


@pytest.mark.parametrize("status", [2, 126, 128, 200, 255])
def test_any_other_exit_status_is_the_failure_sought(
    results: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    fails = f'case "$VIRTUAL_ENV" in */0.27.1) exit 1;; */0.26.0) exit {status};; esac'
    assert cli.main(_command(results, "--", "sh", "-c", fails, good="0.25.1")) == 0
    assert "0.26.0 is the first bad one" in capsys.readouterr().out


def test_a_case_held_to_what_the_good_release_did(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(_command(results, "--no-prune", "--case", fake_check.CASE)) == 0
    said = capsys.readouterr().out
    assert "0.24.0 is the first bad one; 0.23.0 is the last good one" in said
    assert "the structure of the case in 0.20.2/test_reply.json" in said
    (log,) = results.glob("bisect-*/0.24.0/output.log")
    wanted = f"-m harness check --device cpu -k test_reply.py and {fake_check.CASE.partition('::')[2]}"
    assert log.read_text(encoding="utf-8").startswith(wanted)


def test_what_a_search_leaves_is_no_row_of_a_report(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One case, held to another release: `harness report results` must not count it as a run of the suite."""
    records.write(results, "0.20.2", records.SOUND)
    assert cli.main(_command(results, "--no-prune", "--case", fake_check.CASE)) == 0
    assert list(results.rglob("case.json")), sorted(results.rglob("*"))
    capsys.readouterr()
    assert cli.main(["report", str(results), "--expect", "0.20.2", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["evidence"] == str(results / "0.20.2-cpu" / "evidence.json")


def test_releases_that_are_left_out_are_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From 0.20.2 on, this case and the few signatures in these environments are the same up to 0.23.0."""
    assert cli.main(_command(results, "--case", fake_check.CASE)) == 0
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
    assert cli.main(_command(results, "--json", "--case", fake_check.CASE)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["old"], answer["new"]) == (old, new), answer
    assert set(answer["untested"]) == set(unknown), answer
    assert not set(answer["left_out"]) & asked, answer
    assert asked == set(tested), sorted(asked)


def test_an_object_of_the_surface(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(_command(results, "--object", "Request.__init__")) == 0
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
    assert cli.main(_command(results, *arguments)) == 125
    (command,) = commands
    assert cli.main(command[command.index("harness") + 1 :]) == 4
    asked, ahead = made_of
    assert ahead == asked


def _start(results: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *_command(results, *arguments, "--", *EOS)],
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
    _wait(lambda: tested.exists() and "0.23.0" in _tested(results), "0.23.0 was never tested")
    assert _tested(results) == ["0.20.2", "0.27.1", "0.23.0"]
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
    assert _tested(results)[0] == "0.23.0", said
    assert not {"0.20.2", "0.27.1"} & set(_tested(results)), _tested(results)
    assert "0.24.0 is the first bad one; 0.23.0 is the last good one" in said
    assert not list(results.glob("bisect-*/state.json")), "an answered question is asked anew the next time"


def test_fresh_forgets_what_is_known(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = _command(results, "--fresh", "--", *EOS, good="0.23.0", bad="0.24.0")
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
    assert cli.main(_command(results, *wanted)) == 130
    (state,) = results.glob("bisect-*/state.json")
    assert list(json.loads(state.read_text(encoding="utf-8"))["seen"]) == ["0.20.2", "0.27.1"], asked
    assert "0.23.0" in asked


def test_a_command_that_was_not_there_is_looked_for_again(results: Path) -> None:
    subject = subjects.CommandSubject(command=["no-such-command"])
    results.mkdir()
    assert subject.ask(_builds("0.21.0")[0], results).lasting is False


def test_the_same_search_twice_at_once_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each would remove the folders that the other writes to; another question goes on."""
    command = _command(results, "--", *EOS, good="0.23.0", bad="0.24.0")
    running = _start(results, SLOW="0.20.2")
    try:
        _wait((results.parent / "tested").exists, "0.20.2 was never tested")
        assert cli.main(_command(results, "--", *EOS)) == 2
        assert "which another process has under way: wait for it, or end it" in capsys.readouterr().err
        assert cli.main(command) == 0
    finally:
        running.terminate()
        running.communicate()
    assert cli.main(_command(results, "--", *EOS)) == 0


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
