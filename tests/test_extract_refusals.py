"""Extractions that are refused, before anything is written: each with what it is told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import extracting
import pytest
import toy_extraction as toy
from extracting import SAMPLES, Place, require_last

from harness import cli, identity
from harness.errors import GateRefusedError, UsageError

pytestmark = pytest.mark.usefixtures("toys")
place = extracting.place


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (["--layers", "0,3"], "layers was [3, 0] and is [0, 3]"),
        (["--layout", "speculators"], 'layout was "connector" and is "speculators"'),
        (["--tensor-parallel-size", "2"], "tensor_parallel_size was 1 and is 2"),
        (["--dtype", "bfloat16"], 'dtype was "auto" and is "bfloat16"'),
        (["--shard", "1/2"], "shards was 1 and is 2"),
        (["--engine-argument", 'quantization="fp8"'], 'engine_arguments was {} and is {"quantization": "fp8"}'),
    ],
)
def test_other_settings_are_refused(
    place: Place, others: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run()
    before = place.names()
    assert place.run(*others) == UsageError.exit_code
    assert f"manifest.json is of another extraction: {told}. Go on with the same settings" in capsys.readouterr().err
    assert place.names() == before


def test_other_prompts_model_or_vllm_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run()
    toy.prompts(place.prompts, SAMPLES + 1)
    assert place.run() == UsageError.exit_code
    toy.prompts(place.prompts, SAMPLES)
    toy.checkpoint(place.model, rope_theta=1)
    assert place.run() == UsageError.exit_code
    toy.checkpoint(place.model)
    monkeypatch.setattr(identity, "environment", lambda: {**toy.FACTS, "version": "2.0"})
    assert place.run() == UsageError.exit_code
    first, second, third = capsys.readouterr().err.splitlines()
    assert f"samples was {SAMPLES} and is {SAMPLES + 1}; samples_sha256 was" in first
    assert "config_sha256 was" in second
    assert 'vllm was "vllm-toy 1.0" and is "vllm-toy 2.0"' in third


def test_shard_of_another_extraction_is_refused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.run("--shard", "1/2")
    assert place.run("--shard", "2/2", "--layers", "1") == UsageError.exit_code
    assert "manifest-1-of-2.json is of another extraction: layers was [3, 0] and is [1]" in capsys.readouterr().err
    assert place.run("--shard", "2/3") == UsageError.exit_code
    assert "shards was 2 and is 3" in capsys.readouterr().err


def test_somebody_elses_folder_is_refused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.output.mkdir()
    (place.output / "notes.txt").write_text("mine", encoding="utf-8")
    (place.output / "3.safetensors").write_text("mine", encoding="utf-8")
    assert place.run() == UsageError.exit_code
    assert "holds 3.safetensors and no manifest that says of what" in capsys.readouterr().err
    assert place.names() == ["3.safetensors", "notes.txt"]


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (["--layers", "5,0"], "layer 5 does not exist: the model has 5 decoder layers, 0 to 4"),
        (["--layers", "1,1"], "give at least one, each once"),
        (["--model", "/nowhere"], "/nowhere/config.json: No such file or directory. Give the folder"),
        (["--shard", "3/2"], "--shard 3/2: give I/N"),
        (["--max-model-len", "9"], "has 9 tokens; 8 fit. One token is generated within --max-model-len 9"),
        (["--engine-argument", "seed"], "--engine-argument seed: give NAME=JSON"),
        (["--engine-argument", "enforce_eager=false"], "--engine-argument enforce_eager: the command sets it"),
        (
            ["--executor-backend", "uni", "--engine-argument", "async_scheduling=true"],
            "--engine-argument async_scheduling: the command sets it",
        ),
        (["--prompts", "/nowhere"], "/nowhere: No such file or directory. Give a file of prompts"),
        (["--output", "/proc/1/nowhere/out"], "samples cannot be written to /proc/1/nowhere/out"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(
    place: Place, others: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.run(*others) == UsageError.exit_code
    said = capsys.readouterr()
    assert told in said.err
    require_last(said.out, "refused", UsageError.exit_code, told)
    assert not place.output.exists()


def test_prompt_longer_than_the_model_is_named(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with place.prompts.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"token_ids": [1] * (toy.LONGEST + 1)}))
    assert place.run() == UsageError.exit_code
    error = capsys.readouterr().err
    assert f"{place.prompts}:{SAMPLES + 1} has 33 tokens; 32 fit. The model's config has" in error
    assert place.run("--max-model-len", "40") == 0


def test_text_without_a_tokenizer(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.prompts.write_text('{"prompt": "hello"}\n', encoding="utf-8")
    assert place.run() == UsageError.exit_code
    assert "has no tokenizer that can be loaded here" in capsys.readouterr().err


def test_truncated_checkpoint(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    path = place.model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert place.run() == UsageError.exit_code
    assert "model.safetensors is" in capsys.readouterr().err
    assert not place.output.exists()


@pytest.mark.parametrize("run_missing", [False, True])
def test_gate_refuses_before_anything_is_written(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, run_missing: bool
) -> None:
    from harness import gate

    asked = []

    def require(request: Any, **named: Any) -> None:
        asked.append((request, named))
        raise GateRefusedError("no evidence")

    monkeypatch.setattr(gate, "require", require)
    line = [part for part in toy.arguments(place.model, place.prompts, place.output) if part != "--no-gate"]
    line += ["--evidence", "some.json"]
    line += ["--engine-argument", "gpu_memory_utilization=0.5", "--engine-argument", 'quantization="fp8"']
    to_paste = [*line, "--run-missing"]
    given = to_paste if run_missing else line
    monkeypatch.setattr("sys.argv", ["harness", *given])
    assert cli.main(given) == GateRefusedError.exit_code
    said = capsys.readouterr()
    assert "no evidence" in said.err
    require_last(said.out, "refused", GateRefusedError.exit_code, "no evidence")
    assert not place.output.exists()
    ((request, named),) = asked
    assert request.engine_arguments == ("gpu_memory_utilization", "quantization"), request
    assert shlex.split(named.pop("again"))[-len(to_paste) :] == to_paste
    assert named == {"places": [Path("some.json")], "run_missing": run_missing}
    assert (request.client, request.layers, request.longest_prompt) == ("toy_extraction:SOUND", (3, 0), 9)
