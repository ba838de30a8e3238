"""`harness check-all` on fake releases: what runs, what the table says and with what it exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import fake_releases
import pytest
from conftest import TESTS
from fake_releases import BUILDS, World, asked
from records import case

from harness import check_all, cli, environments, evidence, releases
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.environments import Environment
    from harness.options import Options
    from harness.releases import Build

world = fake_releases.world


def test_every_release_runs_and_the_table_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run() == 0
    assert world.asked("check") == [["0.15.1"], ["0.16.0"], ["0.17.1"]]
    rows = fake_releases.rows(capsys.readouterr().out)
    assert list(rows) == ["0.15.1", "0.16.0", "0.17.1"]
    assert all(row.startswith("conforms") and row.endswith("4 passed, 1 not-applicable") for row in rows.values()), (
        rows
    )


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
    assert fake_releases.rows(capsys.readouterr().out)["0.16.0"].split(maxsplit=4) == [
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
    assert fake_releases.rows(capsys.readouterr().out)["0.16.0"].startswith(verdict)


def test_findings_count_more_than_what_cannot_run(world: World) -> None:
    world.release("0.15.1", code=5)
    world.release("0.17.1", [case("test_x.py::test_a", "failed")], code=1)
    assert world.run() == 1


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
        from pathlib import Path
        import fake_releases
        from harness import check_all, environments
        signal.signal(signal.SIGINT, signal.default_int_handler)  # As the command does: a background job ignores it.
        world = fake_releases.World(Path(sys.argv[1]))
        environments.existing = lambda build: None
        environments.ensure = world.environment
        try:
            builds, asked = fake_releases.BUILDS, fake_releases.asked()
            sys.exit(check_all.check_all(builds, [], asked, prune=False, as_json=False))
        except KeyboardInterrupt:
            sys.exit("not caught")
    """)
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
    rows = fake_releases.rows(said)
    assert rows["0.15.1"].startswith("conforms"), rows
    assert (rows["0.16.0"].split()[:2], rows["0.17.1"].split()[:2]) == (["not", "reached"], ["not", "reached"]), rows
    assert evidence.load(world.evidence("0.15.1")).verdict == "conforms"


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
