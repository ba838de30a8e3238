"""Runs that evidence does not cover, and runs that cannot work whatever the evidence."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gated
import pytest
from gated import World

from harness import known_faults, refusal
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "results")


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


def _left(world: World) -> None:
    world.record.engines = [replace(engine, left_behind=[4711]) for engine in world.record.engines]


def _respecified(**changes: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.record.engines = [replace(each, spec={**each.spec, **changes}) for each in world.record.engines]

    return change


LESS = {
    "narrowed by -k": (_narrowed, "the run was narrowed by -k 'values'"),
    "interrupted": (_interrupted, "the run was interrupted before it"),
    "a parameter missing": (_one_parameter, r"test_values.py::test_values: states must be those"),
    "group not run": (
        _without_engine("executor-mp-tp2"),
        "engine executor-mp-tp2 was not run; executor-tight-tp2 was",
    ),
    "tight not run": (_without_engine("executor-tight-tp2"), "engine executor-tight-tp2 was not run"),
    "failed": (gated.outcome("failed", finding=gated.FOUND), "it failed: the buffer was read too early"),
    "error": (gated.outcome("error", finding=gated.FOUND), "it came to an error: the buffer"),
    "skipped": (gated.outcome("skipped", reason="no time"), "it was skipped: no time"),
    "not applicable": (gated.outcome("not-applicable", reason="not mine"), "it is not-applicable: not mine"),
    "known fault": (gated.outcome("known-fault", reason="a kernel"), "a known fault: a kernel"),
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
    text = world.refused()
    assert re.search(said, text), text


def test_one_bad_result_among_good_ones_is_not_outvoted(world: World) -> None:
    world.record.cases += [replace(world.record.cases[0], outcome="skipped", reason="twice")]
    world.write()
    assert "it was skipped: twice" in world.refused()


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
    assert said in world.refused()


def test_wrapped_model_needs_the_wrapper(world: World, tmp_path: Path) -> None:
    world.write()
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": gated.CONFIG}
    world.request = replace(gated.RUN, model=gated.model(tmp_path / "model", **config))
    text = world.refused()
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
        ({"tensor_parallel_size": 128}, "the tiny checkpoints do not divide among 128 ranks: take a power of two"),
        ({"pipeline_parallel_size": 62}, "62 stages for 61 layers"),
    ],
)
def test_run_that_cannot_work_is_refused_in_spite_of_evidence(
    world: World, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    world.write()
    world.request = replace(gated.RUN, model=gated.model(tmp_path / "model"), **changes)
    text = world.refused()
    assert "this run cannot work" in text, text
    assert re.search(said, text), text
    assert "--run-missing" not in text, text


def test_more_ranks_than_devices_are_refused(world: World) -> None:
    world.request = replace(gated.RUN, device="cuda", tensor_parallel_size=8)
    world.devices = dict(gated.GPUS)
    assert "8 ranks need as many devices, and there are 2" in world.refused()


def test_setting_that_this_vllm_cannot_run_is_refused(world: World, tmp_path: Path) -> None:
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": gated.CONFIG}
    world.request = replace(gated.RUN, model=gated.model(tmp_path / "model", **config))
    world.facts["capabilities"]["kimi_k25"] = False
    text = world.refused()
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
