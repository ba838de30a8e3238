"""`harness check-all` on releases whose interpreter is a fake: processes, files and signals are real."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import records
from conftest import TESTS
from records import SOUND, case

from harness import (
    __version__,
    check,
    check_all,
    cli,
    environments,
    evidence,
    hardware,
    releases,
    sources,
    uv,
    variables,
)
from harness.commands import check_all as command
from harness.environments import Environment
from harness.errors import EnvironmentUnusableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.options import Options
    from harness.releases import Build

BUILDS = [releases.find(version).build("cpu") for version in ("0.15.1", "0.16.0", "0.17.1")]
FAKE = """
    import json, os, sys, time
    from pathlib import Path

    release, plan = Path(sys.argv[1]).parent.parent.name, json.loads(os.environ["FAKE_PLAN"])
    said = plan[release]
    with Path("asked").open("a") as asked:
        asked.write(json.dumps([release, *sys.argv[3:]]) + "\\n")
    if sys.argv[3:] == ["harness", "probe", "--json"]:
        print(json.dumps(said["facts"]))
        sys.exit()
    if "evidence" in said:
        path = Path(sys.argv[sys.argv.index("--evidence") + 1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name("new").write_text(said["evidence"])
        path.with_name("new").replace(path)
    if said.get("hangs"):
        try:
            Path("hanging").touch()
            time.sleep(60)
        except KeyboardInterrupt:
            Path("closed").touch()
    sys.exit(said.get("code", 0))
"""


class World:
    """What each fake release does, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, dict[str, Any]] = {}
        self.made: list[str] = []
        self.there: list[str] = []
        self.removed: list[str] = []

    def release(self, version: str, cases: Sequence[evidence.CaseResult] = SOUND, **said: Any) -> None:
        text = json.dumps(self.record(version, cases).as_dict())
        facts = self.facts(version)
        self.plan[version] = {"facts": facts, "evidence": text, "code": 0, **said}

    def record(self, version: str, cases: Sequence[evidence.CaseResult] = SOUND, **changes: Any) -> evidence.Evidence:
        return records.record(
            version,
            cases,
            **{
                "harness": __version__,
                "suite": sources.digest(sources.suite(), version),
                "environment": self.facts(version),
                **changes,
            },
        )

    def facts(self, version: str) -> dict[str, Any]:
        build = releases.find(version).build("cpu")
        return {
            **check_all._facts(build),
            "devices": hardware.describe("cpu"),
            "variables": variables.bound(build.environment, os.environ),
            "generation": "two-phase",
            "capabilities": {"sample_tokens": True},
            "packages": {"torch": build.torch},
        }

    def kept(self, version: str) -> evidence.Evidence:
        return check_all.kept(releases.find(version).build("cpu"), self.evidence(version), asked())

    def evidence(self, version: str) -> Path:
        return self.folder / "results" / f"{version}-cpu" / "evidence.json"

    def asked(self, command: str) -> list[list[str]]:
        """What the fake releases were asked for, without the place of the evidence."""
        path = self.folder / "asked"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        rows = [row[: row.index("--evidence")] if "--evidence" in row else row for row in rows]
        return [[row[0], *row[3:]] for row in rows if row[1:3] == ["harness", command]]

    def environment(self, build: Build) -> Environment:
        path = self.folder / "environments" / build.release
        (path / "bin").mkdir(parents=True, exist_ok=True)
        (path / "bin" / "python").write_text(
            f'#!/bin/sh\nexec {sys.executable} {self.folder / "fake.py"} "$0" "$@"\n', encoding="utf-8"
        )
        (path / "bin" / "python").chmod(0o755)
        return Environment(build=build, path=path, created=False, seconds=0.0)

    def run(self, *arguments: str, prune: bool = False) -> int:
        os.environ["FAKE_PLAN"] = json.dumps(self.plan)
        return check_all.check_all(BUILDS, arguments, asked(*arguments), prune=prune, as_json=False)


def asked(*arguments: str) -> Options:
    return command._asked(arguments)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    (tmp_path / "fake.py").write_text(textwrap.dedent(FAKE), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_PLAN", "")

    def ensure(build: Build) -> Environment:
        world.made.append(build.release)
        world.there.append(build.release)
        return world.environment(build)

    def existing(build: Build) -> Environment | None:
        return world.environment(build) if build.release in world.there else None

    def remove(build: Build) -> None:
        world.there.remove(build.release)
        world.removed.append(build.release)

    monkeypatch.setattr(environments, "ensure", ensure)
    monkeypatch.setattr(environments, "existing", existing)
    monkeypatch.setattr(environments, "remove", remove)
    monkeypatch.setattr(uv, "prune", lambda: world.removed.append("cache"))
    for build in BUILDS:
        world.release(build.release)
    return world


def _rows(said: str) -> dict[str, str]:
    """The table at the end, by release."""
    table = said.rpartition("\n\n")[2].splitlines()
    assert table[0].split() == ["release", "verdict", "took", "cases"], said
    return {line.split()[0]: line.partition(" ")[2].strip() for line in table[1:]}


def test_every_release_runs_and_the_table_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run() == 0
    assert world.asked("check") == [["0.15.1"], ["0.16.0"], ["0.17.1"]]
    rows = _rows(capsys.readouterr().out)
    assert list(rows) == ["0.15.1", "0.16.0", "0.17.1"]
    assert all(row.startswith("conforms") and row.endswith("4 passed, 1 not-applicable") for row in rows.values()), (
        rows
    )


def test_what_conforms_is_kept_and_the_rest_runs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.release("0.16.0", [*SOUND, case("test_x.py::test_a", "failed")], code=1)
    assert world.run() == 1
    world.release("0.16.0")
    assert world.run() == 0
    assert world.asked("check") == [["0.15.1"], ["0.16.0"], ["0.17.1"], ["0.16.0"]]
    rows = _rows(capsys.readouterr().out)
    assert [release for release, row in rows.items() if " kept " in row] == ["0.15.1", "0.17.1"], rows


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"interrupted": True}, "its evidence says incomplete"),
        ({"cases": []}, "its evidence says incomplete"),
        ({"cases": [case("test_x.py::test_a", "skipped")]}, "its evidence says findings"),
        ({"whole": False}, "of a part of the suite"),
        ({"harness": "0.0.1"}, "another state of the suite"),
        ({"suite": "0" * 64}, "another state of the suite"),
        ({"suite": ""}, "another state of the suite"),
    ],
)
def test_evidence_of_another_run_is_not_kept(world: World, changes: dict[str, Any], why: str) -> None:
    evidence.write(world.evidence("0.16.0"), world.record("0.16.0", **changes))
    with pytest.raises(UsageError, match=why):
        world.kept("0.16.0")


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("name", "known_without_it"),
    [
        ("distribution", True),
        ("version", True),
        ("release", True),
        ("python", True),
        ("platform", True),
        ("machine", True),
        ("devices", True),
        ("variables", True),
        ("packages", False),
        ("capabilities", False),
    ],
)
def test_evidence_of_another_environment_is_not_kept(
    world: World, name: str, known_without_it: bool, there: bool
) -> None:
    os.environ["FAKE_PLAN"] = json.dumps(world.plan)
    world.there = ["0.16.0"] if there else []
    path = world.evidence("0.16.0")
    evidence.write(path, world.record("0.16.0"))
    assert world.kept("0.16.0") == evidence.load(path)
    evidence.write(path, world.record("0.16.0", environment={**world.facts("0.16.0"), name: "another"}))
    if there or known_without_it:
        with pytest.raises(UsageError, match=f"another environment: {name}"):
            world.kept("0.16.0")
    else:
        assert world.kept("0.16.0") == evidence.load(path)


def test_edited_or_torn_evidence_is_not_kept(world: World) -> None:
    path = world.evidence("0.16.0")
    evidence.write(path, world.record("0.16.0", interrupted=True))
    records.edit(path, interrupted=False, verdict="conforms")
    with pytest.raises(UsageError, match="was changed"):
        world.kept("0.16.0")
    path.write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match="not JSON"):
        world.kept("0.16.0")


def test_environment_that_cannot_be_probed_runs_again(world: World) -> None:
    world.there = ["0.16.0"]
    os.environ["FAKE_PLAN"] = "{}"
    evidence.write(world.evidence("0.16.0"), world.record("0.16.0"))
    with pytest.raises(UsageError, match="cannot be probed"):
        world.kept("0.16.0")


def test_facts_are_of_this_machine() -> None:
    facts = check_all._facts(BUILDS[1])
    assert (facts["python"], facts["machine"]) == (platform.python_version(), platform.machine())
    assert facts["version"] == "0.16.0"


def test_release_that_cannot_run_here_is_no_pass_and_stops_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ensure = environments.ensure

    def refuse(build: Build) -> Environment:
        if build.release == "0.16.0":
            raise EnvironmentUnusableError("it needs glibc 2.38")
        return ensure(build)

    monkeypatch.setattr(environments, "ensure", refuse)
    assert world.run() == 4
    assert world.asked("check") == [["0.15.1"], ["0.17.1"]]
    assert _rows(capsys.readouterr().out)["0.16.0"].split(maxsplit=4) == [
        "cannot",
        "run",
        "0",
        "s",
        "it needs glibc 2.38",
    ]


@pytest.mark.parametrize(
    ("plan", "code", "verdict"),
    [
        ({"code": 1}, 1, "no result"),  # What the process says counts, too.
        ({"code": 5, "evidence": "{"}, 5, "no result"),
        ({"code": 0, "evidence": "{"}, 1, "no result"),
    ],
)
def test_exit_code_of_the_run_counts(
    world: World, capsys: pytest.CaptureFixture[str], plan: dict[str, Any], code: int, verdict: str
) -> None:
    world.release("0.16.0", **plan)
    assert world.run() == code
    assert _rows(capsys.readouterr().out)["0.16.0"].startswith(verdict)


def test_evidence_of_an_earlier_run_does_not_stand_for_this_one(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence.write(world.evidence("0.16.0"), world.record("0.16.0", suite="old"))
    world.plan["0.16.0"] = {"code": 1}
    assert world.run() == 1
    assert _rows(capsys.readouterr().out)["0.16.0"].startswith("no result")


def test_findings_count_more_than_what_cannot_run(world: World) -> None:
    world.release("0.15.1", code=5)
    world.release("0.17.1", [case("test_x.py::test_a", "failed")], code=1)
    assert world.run() == 1


RUNS: list[tuple[list[str], dict[str, str], str]] = [
    ([], {}, "cpu"),
    (["--dtype", "bfloat16"], {}, "cpu-bfloat16"),
    (["--dtype", "float32"], {}, "cpu"),
    (["--device", "cuda"], {}, "cuda"),
    (["--device", "cuda", "--dtype", "float32"], {}, "cuda-float32"),
    ([], {"VLLM_USE_V2_MODEL_RUNNER": "1"}, "cpu-v2"),
    (["--dtype", "bfloat16"], {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "cpu-bfloat16-v1"),
]


@pytest.mark.parametrize(("arguments", "users", "folder"), RUNS)
@pytest.mark.parametrize("result", [True, False])
def test_run_is_judged_by_its_own_evidence_and_takes_away_no_other(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    users: dict[str, str],
    folder: str,
    *,
    result: bool,
) -> None:
    for name, value in users.items():
        monkeypatch.setenv(name, value)
    others = [world.folder / "results" / f"0.16.0-{of}" / "evidence.json" for *_run, of in RUNS]
    for path in others:
        evidence.write(path, world.record("0.16.0", suite=f"of an earlier run in {path.parent.name}"))
    before = {path: path.read_bytes() for path in others}
    if not result:
        world.plan["0.16.0"] = {"code": 5}
    assert world.run(*arguments) == (0 if result else 5)
    assert _rows(capsys.readouterr().out)["0.16.0"].startswith("conforms" if result else "no result")
    own = world.folder / "results" / f"0.16.0-{folder}" / "evidence.json"
    changed = {path for path in others if path.read_bytes() != before[path]}
    assert changed == ({own} if result else set())


@pytest.mark.parametrize(("arguments", "users"), [(arguments, users) for arguments, users, _folder in RUNS])
def test_evidence_is_looked_for_where_the_check_would_write_it(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], users: dict[str, str]
) -> None:
    for name, value in users.items():
        monkeypatch.setenv(name, value)
    ran: list[Options] = []
    ended = check_all.Ended(release="0.16.0", verdict="conforms", code=0, note="")

    def one(_build: Build, _arguments: Sequence[str], asked: Options, **_named: Any) -> check_all.Ended:
        ran.append(asked)
        return ended

    def checked(options: Options) -> int:
        ran.append(options)
        return 0

    monkeypatch.setattr(check_all, "_one", one)
    assert cli.main(["check-all", "--", *arguments]) == 0
    monkeypatch.setattr(check, "check", checked)
    assert cli.main(["check", *arguments]) == 0
    assert ran[0] == ran[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--evidence", "mine.json"], "--evidence mine.json would hold one release after the other"),
        (["--evi=mine.json"], "--evidence mine.json would hold"),
        (["--setting", "mp-tp2", "--tensor-parallel-size", "2"], "leave out --tensor-parallel-size"),
    ],
)
def test_arguments_that_cannot_be_for_all_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(check_all, "check_all", lambda *_arguments, **_named: pytest.fail("something ran"))
    assert cli.main(["check-all", "--", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_option_that_the_check_lacks_exits_2_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_all, "check_all", lambda *_arguments, **_named: pytest.fail("something ran"))
    with pytest.raises(SystemExit) as caught:
        cli.main(["check-all", "--", "--dtyp", "float16"])
    assert caught.value.code == 2


def test_arguments_reach_the_check_and_keep_nothing(world: World) -> None:
    assert world.run() == 0
    assert world.run("-k", "reply") == 0
    assert world.asked("check")[3:] == [[build.release, "-k", "reply"] for build in BUILDS]


def test_interrupt_closes_the_run_keeps_what_is_finished_and_exits_130(world: World) -> None:
    world.release("0.16.0", hangs=True, code=130)
    script = textwrap.dedent("""
        import signal, sys
        import pytest, test_check_all
        from harness import check_all, environments
        signal.signal(signal.SIGINT, signal.default_int_handler)  # As the command does: a background job ignores it.
        world = test_check_all.World(test_check_all.Path(sys.argv[1]))
        environments.existing = lambda build: None
        environments.ensure = world.environment
        try:
            builds, asked = test_check_all.BUILDS, test_check_all.asked()
            sys.exit(check_all.check_all(builds, [], asked, prune=False, as_json=False))
        except KeyboardInterrupt:
            sys.exit("not caught")
    """).replace("test_check_all.Path", "__import__('pathlib').Path")
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(world.folder)],
        env={**os.environ, "FAKE_PLAN": json.dumps(world.plan), "PYTHONPATH": f"{TESTS}:{TESTS.parent}"},
        cwd=world.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        while not (world.folder / "hanging").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[0]
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert (world.folder / "closed").exists()
    rows = _rows(said)
    assert rows["0.15.1"].startswith("conforms"), rows
    assert (rows["0.16.0"].split()[:2], rows["0.17.1"].split()[:2]) == (["not", "reached"], ["not", "reached"]), rows
    assert evidence.load(world.evidence("0.15.1")).verdict == "conforms"


# Room on the disk.


class Disk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World, *, free: int, frees: int) -> None:
        def usage(_path: Path) -> Any:
            return SimpleNamespace(free=free + frees * len(world.removed))

        monkeypatch.setattr(shutil, "disk_usage", usage)


@pytest.mark.parametrize(
    ("free", "removed"),
    [
        (check_all.NEEDED_BYTES, []),
        (check_all.NEEDED_BYTES - 1, ["0.15.1"]),
        (check_all.NEEDED_BYTES - 2, ["0.15.1", "0.16.0"]),
        (check_all.NEEDED_BYTES - 3, ["0.15.1", "0.16.0", "cache"]),
        (0, ["0.15.1", "0.16.0", "cache"]),
    ],
)
def test_room_is_made_as_far_as_needed(
    world: World, monkeypatch: pytest.MonkeyPatch, free: int, removed: list[str]
) -> None:
    Disk(monkeypatch, world, free=free, frees=1)
    world.there = ["0.15.1", "0.16.0"]
    check_all.make_room(BUILDS[2], BUILDS[:2])
    assert world.removed == removed


def test_environment_that_is_there_needs_no_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, world, free=0, frees=0)
    world.there = ["0.15.1", "0.17.1"]
    check_all.make_room(BUILDS[2], BUILDS[:2])
    assert world.removed == []


@pytest.mark.parametrize(("prune", "removed"), [(False, []), (True, ["cache", "0.15.1", "cache", "0.16.0", "cache"])])
def test_room_is_made_only_if_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch, prune: bool, removed: list[str]
) -> None:
    Disk(monkeypatch, world, free=0, frees=0)
    assert world.run(prune=prune) == 0
    assert world.removed == removed


def test_pruned_releases_are_kept_and_not_made_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, world, free=0, frees=0)
    assert world.run(prune=True) == 0
    world.made.clear()
    assert world.run(prune=True) == 0
    assert world.made == []


def test_room_is_looked_for_where_environments_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "not" / "yet"))
    assert check_all._free() > 0


# The command.


def test_command_runs_every_pinned_cpu_release(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noted(builds: Sequence[Build], arguments: Sequence[str], _asked: Options, **named: Any) -> int:
        asked.append(([build.release for build in builds], arguments, named))
        return 1

    monkeypatch.setattr(check_all, "check_all", noted)
    assert cli.main(["check-all", "--prune", "--", "-k", "reply"]) == 1
    pinned = [release.version for release in releases.with_build("cpu")]
    assert asked == [(pinned, ["-k", "reply"], {"prune": True, "as_json": False})]


def test_json_is_all_that_is_on_stdout(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    os.environ["FAKE_PLAN"] = json.dumps(world.plan)
    assert check_all.check_all(BUILDS, [], asked(), prune=False, as_json=True) == 0
    rows = json.loads(capfd.readouterr().out)
    assert [(row["release"], row["verdict"], row["kept"]) for row in rows] == [
        (build.release, "conforms", False) for build in BUILDS
    ]


# Environments.


def test_removed_environment_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path))
    build = replace(BUILDS[0], release="9.9.9")
    path = tmp_path / "9.9.9"
    assert environments.existing(build) is None
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").touch()
    marker = path / environments.MARKER
    marker.write_text(json.dumps({"fingerprint": "another"}), encoding="utf-8")
    assert environments.existing(build) is None
    marker.write_text(json.dumps({"fingerprint": environments.fingerprint(build, ())}), encoding="utf-8")
    found = environments.existing(build)
    assert found is not None
    assert found.path == path
    environments.remove(build)
    assert environments.existing(build) is None
    assert not path.exists()
    environments.remove(build)
