"""What the gate lets through, what it says beside the verdict, and the function that a run of ours asks."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gated
import pytest
from gated import World

from harness import check, evidence, gate, refusal, settings
from harness.commands import gate as command
from harness.errors import GateRefusedError
from harness.needs import Request

if TYPE_CHECKING:
    from pathlib import Path

    from harness.evidence import Evidence, Outcome
    from harness.options import Options


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "results")


# What is let through.


def test_complete_evidence_passes(world: World) -> None:
    world.write()
    decision = world.decide()
    assert decision.passes, refusal.text(decision)
    assert (len(decision.covered), decision.files) == (len(world.record.cases), (world.path,))
    assert "on executor-mp-tp2, executor-tight-tp2" in refusal.accepted(decision)


def test_evidence_spread_over_two_files_passes(world: World) -> None:
    whole = world.complete()
    first, second = world.complete(), world.complete()
    first.cases, second.cases = whole.cases[::2], whole.cases[1::2]
    world.write(first, "first.json")
    assert not world.decide().passes
    world.write(second, "second.json")
    assert world.decide().passes


def test_file_that_does_not_count_is_named_and_stands_in_nobodys_way(world: World) -> None:
    world.write()
    (world.folder / "broken.json").write_text("{", encoding="utf-8")
    decision = world.decide()
    assert decision.passes, refusal.text(decision)
    assert "broken.json does not count: is not JSON" in refusal.accepted(decision)


@pytest.mark.parametrize("later", ["failed", "passed"])
def test_of_two_runs_of_a_case_the_later_says_how_it_is(world: World, later: Outcome) -> None:
    earlier: Outcome = "passed" if later == "failed" else "failed"
    world.result("test_sound_data", outcome=earlier, finding=gated.FOUND)
    world.record.started = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).isoformat(timespec="seconds")
    world.write(name="old.json")
    world.record = world.complete()
    world.result("test_sound_data", outcome=later, finding=gated.FOUND)
    world.write(name="new.json")
    assert world.decide().passes is (later == "passed")


def test_failures_that_the_run_does_not_need_are_not_in_its_way(world: World) -> None:
    case = evidence.CaseResult(
        id="test_x.py::test_y[llm-uni-tp1]", outcome="failed", seconds=1.0, finding=gated.FOUND
    )
    world.record.cases.append(case)
    world.write()
    assert world.decide().passes


# What it says beside the verdict.


def test_refusal_of_nothing_has_one_line_to_paste(world: World) -> None:
    decision = world.decide()
    first, second = refusal.commands(decision, ["python", "extract me.py", "--fast"])
    assert first.endswith("gate --tensor-parallel-size 2 --run-missing -- python 'extract me.py' --fast"), first
    assert "check --client executor --device cpu --setting mp-tp2 --setting tight-tp2 --evidence " in second, second
    assert f"  {first}\n" in refusal.text(decision, ["python", "extract me.py", "--fast"])


def test_refusal_says_how_whoever_asked_goes_on(world: World) -> None:
    said = refusal.text(world.decide(), again="harness extract --run-missing")
    assert "run what is missing, and go on:\n  harness extract --run-missing\nor run it by hand" in said, said


@pytest.mark.parametrize(
    ("script", "variables", "called"),
    [
        ("/bin/harness", {}, "harness"),
        ("/other/harness", {}, "/other/harness"),
        ("/other/harness", {"PYTHONPATH": "my clients"}, "env 'PYTHONPATH=my clients' /other/harness"),
        ("/site/harness/__main__.py", {}, f"{sys.executable} -m harness"),
        ("/site/harness/__main__.py", {"PYTHONPATH": "/site"}, f"env PYTHONPATH=/site {sys.executable} -m harness"),
    ],
)
def test_a_line_to_paste_starts_the_program_that_printed_it(
    world: World, monkeypatch: pytest.MonkeyPatch, script: str, variables: dict[str, str], called: str
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("shutil.which", {"harness": "/bin/harness"}.get)
    monkeypatch.setattr("sys.argv", [script, "extract", "--output", "my states"])
    assert refusal.this_command() == f"{called} extract --output 'my states' --run-missing"
    goes_on, by_hand = refusal.commands(world.decide())
    assert (goes_on.partition(" gate ")[0], by_hand.partition(" check ")[0]) == (called, called)


@pytest.mark.parametrize(("client", "told"), [("executor", True), ("extract", False)])
def test_command_that_sets_the_suites_variables_is_not_told_to(world: World, client: str, *, told: bool) -> None:
    world.request = replace(gated.RUN, client=client)
    said = [warning for warning in world.decide().warnings if "set them for the run too" in warning]
    assert bool(said) is told, said


def test_failed_case_is_not_run_again_by_itself(world: World) -> None:
    gated.outcome("failed", finding=gated.FOUND)(world)
    world.write()
    (line,) = refusal.commands(world.decide())
    assert "--run-missing" not in line, line
    assert "--setting mp-tp2" in line, line


def test_arguments_say_the_request_again() -> None:
    request = Request(
        client="llm",
        model="a b",
        layers=(2, 30),
        max_num_seqs=4,
        chunked_prefill=False,
        prefix_caching=False,
        async_scheduling=True,
        engine_arguments=("quantization", "seed"),
    )
    assert refusal.arguments(request) == [
        *("--client", "llm", "--model", "a b", "--layers", "2,30", "--max-num-seqs", "4"),
        *("--no-chunked-prefill", "--no-prefix-caching", "--async-scheduling"),
        *("--engine-argument", "quantization", "--engine-argument", "seed"),
    ]
    parser = argparse.ArgumentParser()
    command.request_arguments(parser)
    assert command.request(parser.parse_args(refusal.arguments(request))) == request


def test_decision_as_json_says_all_of_it(world: World) -> None:
    world.record.cases = [case for case in world.record.cases if "layer3" not in case.id]
    world.write()
    said = json.loads(json.dumps(refusal.as_dict(world.decide())))
    assert [gap["case"] for gap in said["gaps"]] == ["test_values.py::test_values[executor-mp-tp2-layer3]"]
    assert said["gaps"][0]["reason"] == "states must be those of Hugging Face's forward"
    assert (said["passes"], said["engines"]) == (False, ["executor-mp-tp2", "executor-tight-tp2"])
    assert set(said) == {
        *("passes", "release", "version", "request", "engines", "covered", "gaps", "obstacles", "warnings"),
        *("evidence", "invalid", "commands"),
    }


@pytest.mark.parametrize(
    ("changes", "folder", "dtype"),
    [
        ({}, "0.16.0-cpu", "float32"),
        ({"dtype": "bfloat16"}, "0.16.0-cpu-bfloat16", "bfloat16"),
        ({"dtype": "float16"}, "0.16.0-cpu", "float32"),
        ({"device": "cuda"}, "0.16.0-cuda", "bfloat16"),
    ],
)
def test_suite_runs_in_the_dtype_of_the_run_where_it_has_it(
    world: World, changes: dict[str, Any], folder: str, dtype: str
) -> None:
    world.request = replace(gated.RUN, **changes)
    world.devices = dict(gated.GPUS if "device" in changes else gated.CPU)
    decision = world.decide()
    assert (decision.folder.name, decision.options.dtype) == (folder, dtype)
    by_hand = refusal.commands(decision)[-1]
    assert (f"--dtype {dtype}" in by_hand) == (folder == "0.16.0-cpu-bfloat16"), by_hand


def test_dtype_that_no_evidence_is_of_is_said(world: World, tmp_path: Path) -> None:
    world.request = replace(gated.RUN, model=gated.model(tmp_path / "model"))
    world.write()
    assert "the run is in bfloat16, and the evidence in float32: other kernels may be chosen" in (
        world.decide().warnings
    )


# The library function that a run of the harness itself asks.


def test_require_gives_the_decision_or_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.use(monkeypatch)
    with pytest.raises(GateRefusedError, match=rf"{len(world.record.cases)} of {len(world.record.cases)} cases"):
        gate.require(world.request, places=[world.folder])
    world.write()
    assert gate.require(world.request, places=[world.folder]).passes


@pytest.mark.parametrize("status", ["failed", "obstacle"])
def test_nothing_is_run_where_that_would_not_help(world: World, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    def run(*_arguments: object, **_named: object) -> None:
        raise AssertionError("something ran")

    monkeypatch.setattr(gate, "run", run)
    world.use(monkeypatch)
    if status == "failed":
        gated.outcome("failed", finding=gated.FOUND)(world)
        world.keep(["test_sound_data"])
    else:
        world.request = replace(gated.RUN, executor_backend="uni")
    world.write()
    with pytest.raises(GateRefusedError):
        gate.require(world.request, places=[world.folder], run_missing=True)


def test_only_what_is_missing_is_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Options, list[str]]] = []

    def run(
        options: Options, _facts: dict[str, Any], groups: list[settings.Group], _results: Path
    ) -> tuple[int, Evidence]:
        asked.append((options, [group.name for group in groups]))
        return 0, world.complete()

    monkeypatch.chdir(world.folder)
    monkeypatch.setattr(check, "run", run)
    world.record.cases = [
        case for case in world.record.cases if "layer3" not in case.id and "capabilities" not in case.id
    ]
    world.write()
    world.use(monkeypatch)
    assert gate.require(world.request, places=[world.folder], run_missing=True).passes
    ((options, groups),) = asked
    assert groups == ["executor-mp-tp2"]
    assert options.only == {
        settings.NO_ENGINE: ["test_capabilities.py::test_capabilities"],
        "executor-mp-tp2": ["test_values.py::test_values"],
    }
    assert not options.whole
