"""Evidence that `harness check-all` keeps instead of a run, and evidence that it does not."""

from __future__ import annotations

import json
import os
import platform
from typing import TYPE_CHECKING, Any

import fake_releases
import pytest
import records
from fake_releases import BUILDS, World
from records import SOUND, case

from harness import check, check_all, cli, evidence
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.options import Options
    from harness.releases import Build

world = fake_releases.world


def test_what_conforms_is_kept_and_the_rest_runs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.release("0.16.0", [*SOUND, case("test_x.py::test_a", "failed")], code=1)
    assert world.run() == 1
    world.release("0.16.0")
    assert world.run() == 0
    assert world.asked("check") == [["0.15.1"], ["0.16.0"], ["0.17.1"], ["0.16.0"]]
    rows = fake_releases.rows(capsys.readouterr().out)
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


def test_evidence_of_an_earlier_run_does_not_stand_for_this_one(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence.write(world.evidence("0.16.0"), world.record("0.16.0", suite="old"))
    world.plan["0.16.0"] = {"code": 1}
    assert world.run() == 1
    assert fake_releases.rows(capsys.readouterr().out)["0.16.0"].startswith("no result")


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
    assert fake_releases.rows(capsys.readouterr().out)["0.16.0"].startswith("conforms" if result else "no result")
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
