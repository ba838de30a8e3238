from __future__ import annotations

from pathlib import Path
from typing import Any

import flow
import pytest

from harness import check, machine
from harness.options import DEFAULT_DTYPES, DTYPES, model_runner
from harness.settings import MP, MP_TP2, Group


@pytest.mark.parametrize(
    ("changes", "results", "snapshots"),
    [
        ({}, "0.26.0-cpu", "0.26.0"),
        ({"dtype": "bfloat16"}, "0.26.0-cpu-bfloat16", "0.26.0"),
        ({"device": "cuda", "dtype": "bfloat16"}, "0.26.0-cuda", "0.26.0-cuda"),
        ({"device": "cuda"}, "0.26.0-cuda-float32", "0.26.0-cuda"),
        ({"device": "cuda", "dtype": "bfloat16", "model_runner": "v1"}, "0.26.0-cuda-v1", "0.26.0-cuda-v1"),
        ({"device": "cuda", "dtype": "bfloat16", "snapshots_of": "0.20.2"}, "0.26.0-cuda", "0.20.2-cuda"),
    ],
)
def test_runs_that_differ_have_folders_of_their_own(changes: dict[str, Any], results: str, snapshots: str) -> None:
    options = flow.options(Path("evidence.json"), **changes)
    assert (options.results("0.26.0"), options.snapshots("0.26.0")) == (results, snapshots)


@pytest.mark.parametrize(
    ("changes", "whole", "narrowed"),
    [
        ({}, True, False),
        ({"device": "cuda", "dtype": "bfloat16"}, True, False),
        ({"clients": ("mine:C",)}, False, False),
        ({"tensor_parallel_sizes": (2,)}, False, True),
        ({"settings": ("mp-tp2",)}, False, True),
        ({"model_kind": "kimi-k25"}, False, True),
        ({"pipeline_parallel_size": 2}, False, True),
        ({"executor_backend": "ray"}, False, True),
        ({"snapshots_of": "0.20.2"}, False, True),
        ({"keyword": "reply"}, False, True),
        ({"only": {"llm-mp-tp2": ["test_reply.py"]}}, False, True),
    ],
    ids=lambda value: " ".join(value) or "plain" if isinstance(value, dict) else "",
)
def test_what_is_a_whole_run_and_what_is_one_of_its_clients(
    changes: dict[str, Any], whole: bool, narrowed: bool
) -> None:
    options = flow.options(Path("evidence.json"), **({"clients": ()} | changes))
    assert (options.whole, options.narrowed) == (whole, narrowed)
    also = flow.options(Path("evidence.json"), **({"clients": ("mine:C",)} | changes))
    assert (also.whole, also.narrowed) == (False, narrowed)


@pytest.mark.parametrize(("value", "runner"), [(None, ""), ("0", "v1"), ("1", "v2"), ("", "")])
def test_model_runner_is_what_vllms_variable_says(
    monkeypatch: pytest.MonkeyPatch, value: str | None, runner: str
) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    if value is not None:
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", value)
    assert model_runner() == runner


def test_every_device_has_a_dtype() -> None:
    assert DEFAULT_DTYPES == {"cpu": "float32", "cuda": "bfloat16"}
    assert set(DEFAULT_DTYPES.values()) == set(DTYPES)


@pytest.mark.parametrize(("gpus", "left"), [(1, [MP]), (2, [MP, MP_TP2])])
def test_engine_that_needs_more_gpus_than_there_are_is_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gpus: int, left: list[Any]
) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: gpus)
    groups = [Group(client="llm", setting=setting) for setting in (MP, MP_TP2)]
    options = flow.options(Path("evidence.json"), device="cuda", dtype="bfloat16")
    facts: dict[str, Any] = {"release": "0.20.2", "capabilities": {}}
    assert [group.setting for group in check._possible(groups, facts, options)] == left
    said = capsys.readouterr().out
    assert ("llm-mp-tp2 is left out: it needs 2 GPUs, and there are 1" in said) == (gpus == 1), said
