from __future__ import annotations

import json
from typing import TYPE_CHECKING

import made
import pytest

from harness import cli, environments
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from pathlib import Path

    from harness.releases import Build

# Fails where eos_token_id is gone.
LOOKS = ["sh", "-c", "echo in $VIRTUAL_ENV; grep -q eos_token_id $VIRTUAL_ENV/lib/python*/site-packages/vllm/v1/*"]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "environments"))
    made.row(tmp_path / "environments", first_without="0.23.0")
    return tmp_path / "results"


def _each(results: Path, *arguments: str, releases: str = ">=0.21,<0.25") -> int:
    return cli.main(["each", "--releases", releases, "--results", str(results), *arguments])


def test_a_command_that_fails_on_some_releases(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _each(results, "--", *LOOKS) == 1
    said = capsys.readouterr().out
    lines = [line.split()[1:3] for line in said.splitlines() if line.startswith("[")]
    assert lines == [
        ["0.21.0", "passed"],
        ["0.22.1", "passed"],
        ["0.23.0", "failed"],
        ["0.24.0", "failed"],
    ], said
    assert f"0.23.0: failed; the end of {results}/0.23.0.log:\n  in " in said
    assert f"2 passed, 2 failed; outputs are in {results}" in said
    assert sorted(path.name for path in results.iterdir()) == [
        f"{version}.log" for version in ("0.21.0", "0.22.1", "0.23.0", "0.24.0")
    ]
    assert (results / "0.21.0.log").read_text(encoding="utf-8").endswith("environments/0.21.0\n")


def test_passing_everywhere_exits_0(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _each(results, "--", "true", releases="0.22.1,0.21.0") == 0
    said = capsys.readouterr().out
    assert said.index("0.21.0") < said.index("0.22.1"), said
    assert "2 passed; outputs" in said


def test_as_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _each(results, "--json", "--", "sh", "-c", "exit 3", releases="0.21.0") == 1
    said = capsys.readouterr()
    (row,) = json.loads(said.out)
    assert row.pop("seconds") < 10
    assert row == {
        "release": "0.21.0",
        "outcome": "failed",
        "status": 3,
        "output": str(results / "0.21.0.log"),
    }
    assert "[1/1] 0.21.0" in said.err


def test_options_of_the_command_are_its_own(results: Path) -> None:
    assert _each(results, "--", "sh", "-c", 'test "$1" = --json', "sh", "--json", releases="0.21.0") == 0


def test_time_is_bounded_a_release(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = 'case "$VIRTUAL_ENV" in */0.21.0) exec sleep 60;; esac'
    assert _each(results, "--timeout", "0.5", "--", "sh", "-c", slow, releases="0.21.0,0.22.1") == 1
    said = capsys.readouterr().out
    assert "1 passed, 1 timed out" in said


@pytest.mark.parametrize(("failing", "code"), [("true", 4), ("false", 1)])
def test_environment_that_cannot_be_made_is_told_and_the_others_go_on(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: str, code: int
) -> None:
    ensure = environments.ensure

    def broken(build: Build, *, requirements: list[str]) -> environments.Environment:
        if build.release == "0.21.0":
            raise EnvironmentUnusableError("the disk is full")
        return ensure(build, requirements=requirements)

    monkeypatch.setattr(environments, "ensure", broken)
    assert _each(results, "--", failing, releases="0.21.0,0.22.1") == code
    said = capsys.readouterr().out
    assert "0.21.0: no environment; the end of" in said
    assert "the disk is full" in said
    assert "[2/2] 0.22.1" in said


@pytest.mark.parametrize("lacking", [["0.21.0"], ["0.22.1"], ["0.21.0", "0.22.1"]])
def test_a_release_that_lacks_the_command_stops_no_other(
    results: Path, capsys: pytest.CaptureFixture[str], lacking: list[str]
) -> None:
    for version in {"0.21.0", "0.22.1", "0.23.0"} - set(lacking):
        tool = results.parent / "environments" / version / "bin" / "my-tool"
        tool.write_text("#!/bin/sh\n", encoding="utf-8")
        tool.chmod(0o755)
    assert _each(results, "--json", "--", "my-tool", releases="0.21.0,0.22.1,0.23.0") == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["release"] for row in rows if row["outcome"] == "no command"] == lacking, rows
    assert [row["status"] for row in rows if row["outcome"] == "passed"] == [0] * (3 - len(lacking)), rows
    assert "'my-tool' is no command" in (results / f"{lacking[0]}.log").read_text(encoding="utf-8")


def test_a_command_that_is_none_anywhere_is_told_after_the_outcomes(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _each(results, "--json", "--", "no-such-command", releases="0.21.0,0.22.1") == 2
    said = capsys.readouterr()
    assert [row["outcome"] for row in json.loads(said.out)] == ["no command"] * 2
    assert "no release's environment has it" in said.err


def test_requirements_get_environments_of_their_own(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def make(_build: Build, path: Path, requirements: list[str]) -> None:
        asked.extend([path.name, *requirements])
        (path / "bin").mkdir(parents=True)

    monkeypatch.setattr("harness.installing.install", make)
    assert _each(results, "--with", "b", "--with", "a==1", "--", "true", releases="0.21.0") == 0
    name, *requirements = asked
    assert name.startswith("0.21.0-with-"), asked
    assert requirements == ["b", "a==1"]
    assert (results.parent / "environments" / "0.21.0" / environments.MARKER).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--releases", "0.21", "--", "true"], "did you mean 0.21.0"),
        (["--releases", ">0.2x", "--", "true"], "no version specifier"),
        (["--releases", ">9", "--", "true"], "no pinned release"),
        (["--timeout", "0", "--", "true"], "more than 0"),
        (["--releases", "0.21.0", "--", "no-such-command"], "is no command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("results")
def test_wrong_usage_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert cli.main(["each", "--results", str(tmp_path / "results"), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_named_release_without_a_build_exits_4(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _each(results, "--", "true", releases="0.33.0") == 4
    assert "has no cpu build" in capsys.readouterr().err
