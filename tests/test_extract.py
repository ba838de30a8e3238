from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest
import toy_extraction as toy
from safetensors.numpy import load_file

from harness import cli, identity, processes
from harness.commands import extract
from harness.errors import (
    FINDINGS,
    INTERRUPTED,
    DeliveryError,
    EnvironmentUnusableError,
    GateRefusedError,
    HarnessError,
    UsageError,
)
from harness.extraction import conduct, folder, stored
from harness.extraction.layouts import LAYOUTS
from harness.extraction.manifest import Manifest
from harness.extraction.plan import AXES
from harness.extraction.shard import Shard

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("toys")
SAMPLES = 20


@pytest.fixture(autouse=True)
def toy_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "environment", lambda: dict(toy.FACTS))
    monkeypatch.setattr(conduct, "CLIENT", "toy_extraction:SOUND")


class Place:
    """A checkpoint, a file of prompts, and where the samples go."""

    def __init__(self, tmp_path: Path) -> None:
        self.model = toy.checkpoint(tmp_path / "model")
        self.prompts = toy.prompts(tmp_path / "prompts.jsonl", SAMPLES)
        self.output = tmp_path / "out"

    def run(self, *others: str) -> int:
        return cli.main(toy.arguments(self.model, self.prompts, self.output, *others))

    def manifest(self, suffix: str = "") -> dict[str, Any]:
        body: dict[str, Any] = json.loads((self.output / f"manifest{suffix}.json").read_text(encoding="utf-8"))
        return body

    def journal(self, suffix: str = "") -> list[dict[str, Any]]:
        lines = (self.output / f"samples{suffix}.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.output.iterdir()) if self.output.exists() else []

    def digests(self) -> dict[str, str]:
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.output.glob("*.safetensors")
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setattr(conduct, "CLIENT", f"toy_extraction:{name}")


WHOLE = sorted(
    [f"{index}.safetensors{end}" for index in range(SAMPLES) for end in ("", ".lock")]
    + ["manifest.json", "samples.jsonl"]
)


def _require_whole(place: Place) -> None:
    """Every sample is there once, with its own values, and nothing else is."""
    assert place.names() == WHOLE
    assert sorted(row["index"] for row in place.journal()) == list(range(SAMPLES))
    for index, line in enumerate(place.prompts.read_text(encoding="utf-8").splitlines()):
        ids = json.loads(line)["prompt_token_ids"]
        held = load_file(place.output / f"{index}.safetensors")
        expected = np.array([[[token * layer + 0.5] * toy.HIDDEN_SIZE for layer in (3, 0)] for token in ids])
        assert held["token_ids"].tolist() == ids
        np.testing.assert_array_equal(held["hidden_states"], expected.astype(np.float32))
    assert place.manifest()["complete"] is True


def test_a_run(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.run() == 0
    _require_whole(place)
    manifest, journal = place.manifest(), place.journal()
    assert manifest["delivered"] == {
        "samples": SAMPLES,
        "tokens": sum(row["tokens"] for row in journal),
        "bytes": sum(path.stat().st_size for path in place.output.glob("*.safetensors")),
    }
    assert manifest["dtype"] == "float32"
    assert manifest["evidence"] == ["not gated"]
    assert manifest["settings"]["layers"] == [3, 0]
    assert manifest["settings"]["vllm"] == "vllm-toy 1.0"
    assert manifest["prompts"] == {
        "path": str(place.prompts),
        "sha256": hashlib.sha256(place.prompts.read_bytes()).hexdigest(),
        "count": SAMPLES,
    }
    assert manifest["engine"]["max_model_len"] == 10, "the longest prompt has 9 tokens, and one is generated"
    assert (journal[0]["file"], journal[1]["rank"]) == ("0.safetensors", 1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["booting", "up", "done"]
    # 8192 rows of two layers, twice, in two bytes a value, and a byte a row and layer.
    staged = 8192 * 2 * (2 * toy.HIDDEN_SIZE * 2 + 1)
    assert lines[0]["staged_bytes"] == staged
    assert f"states take {staged:,} bytes of each rank's device" in lines[0]["text"]
    assert f"{place.output}/{conduct.LOGS}/engine.stderr.log has more" in lines[0]["text"]
    assert lines[-1]["samples"] == lines[-1]["of_samples"] == SAMPLES
    assert lines[-1]["tokens"] == manifest["delivered"]["tokens"]


def test_all_there_boots_nothing(
    place: Place, client: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    place.run()
    before = place.digests()
    client("NONE")
    capsys.readouterr()
    assert place.run() == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in events] == ["resumed", "complete"]
    assert "nothing was booted" in events[-1]["text"]
    assert place.digests() == before


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes and was"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"')), "cannot be read (KeyError"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b'"F32"', b'"F16"').replace(b"F32", b"F16")),
            "holds",
        ),
        (lambda path: path.write_bytes(_other_ids(path.read_bytes())), "other ids"),
    ],
    ids=["gone", "short", "zeros", "no dtype", "dtype", "ids"],
)
def test_file_that_is_damaged_is_extracted_again(
    place: Place, damage: Callable[[Path], None], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run()
    before = place.digests()
    damage(place.output / "7.safetensors")
    capsys.readouterr()
    assert place.run() == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["event"] == "dropped"
    assert told in lines[0]["text"], lines[0]
    assert (lines[1]["kept"], lines[-1]["samples"]) == (SAMPLES - 1, 1)
    assert place.digests() == before
    _require_whole(place)


def test_nothing_is_removed_while_a_file_cannot_be_read(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even what is damaged for sure, or half written: what the system says now may be wrong of that too."""
    place.run()
    (place.output / "5.safetensors").unlink()
    (place.output / "9.safetensors.partial").write_bytes(b"half")
    before = {path.name: path.read_bytes() for path in place.output.iterdir()}
    read = stored.read

    def stale(path: Path, layout: str) -> stored.Stored:
        if path.name == "7.safetensors":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(path, layout)

    with monkeypatch.context() as patched:
        patched.setattr(stored, "read", stale)
        assert place.run() == DeliveryError.exit_code
    assert "7.safetensors cannot be read now (OSError: [Errno 116] Stale file handle); nothing was removed. Run" in (
        capsys.readouterr().err
    )
    assert {path.name: path.read_bytes() for path in place.output.iterdir()} == before
    assert place.run() == 0
    _require_whole(place)


def _other_ids(content: bytes) -> bytes:
    start = 8 + int.from_bytes(content[:8], "little")
    return content[:start] + bytes([content[start] + 1]) + content[start + 1 :]


def test_half_a_line_and_half_a_file_are_dropped(place: Place, client: Callable[[str], None]) -> None:
    client("FULL")
    assert place.run() == DeliveryError.exit_code
    with (place.output / "samples.jsonl").open("a", encoding="utf-8") as journal:
        journal.write('{"index": 9, "file')
    (place.output / "9.safetensors.partial").write_bytes(b"half")
    (place.output / "10.safetensors").write_bytes(b"whole, and in no journal")
    for name in (
        ".manifest.json.1",
        ".samples.jsonl.1",
        ".harness-0-1",
        "11.safetensors.lock",
        "data_3.pt.whole.partial",
    ):
        (place.output / name).write_bytes(b"of a process that was killed")
    client("SOUND")
    assert place.run() == 0
    _require_whole(place)


def test_sample_that_is_noted_twice_counts_once(place: Place) -> None:
    place.run()
    noted = place.output / "samples.jsonl"
    noted.write_text(noted.read_text(encoding="utf-8") * 2, encoding="utf-8")
    assert place.run() == 0
    _require_whole(place)
    assert place.manifest()["delivered"]["samples"] == SAMPLES


def test_journal_that_is_none_is_named(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.run()
    noted = place.output / "samples.jsonl"
    noted.write_text('{"index": 1}\n', encoding="utf-8")
    assert place.run() == UsageError.exit_code
    assert f"{noted}:1 is no record of a sample" in capsys.readouterr().err
    noted.unlink()
    assert place.run("--layers", "1") == UsageError.exit_code, "its manifest still says what the files are of"
    assert place.run() == 0
    _require_whole(place)


def test_nobody_needs_to_read_what_it_says(place: Place) -> None:
    run = subprocess.Popen(_child("SLOW", place), stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    run.stdout.readline()
    run.stdout.close()
    assert run.wait() == 0
    _require_whole(place)


def test_layouts_of_the_command_are_those_that_there_are() -> None:
    assert list(extract.LAYOUTS) == list(LAYOUTS)
    assert set(AXES) == set(LAYOUTS)


def _require_last(out: str, event: str, code: int, said: str) -> None:
    """The last line is of the end, for a program: all of what stderr says."""
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == (event, code), last
    assert said in last["text"], last


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyError("nothing"), HarnessError.exit_code, "KeyError: 'nothing'"),
        (OSError(28, "No space left on device"), EnvironmentUnusableError.exit_code, "No space left on device. Free"),
        (ModuleNotFoundError("", name="griffe"), EnvironmentUnusableError.exit_code, "griffelib is missing in"),
    ],
    ids=["ours", "the disk", "a dependency"],
)
def test_error_that_nobody_raised_on_purpose_is_an_event_with_the_exit_code_too(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    said: str,
) -> None:
    def broken() -> None:
        raise error

    monkeypatch.setattr(identity, "environment", broken)
    assert place.run("--json") == code
    _require_last(capsys.readouterr().out, "failed", code, said)


def test_on_a_terminal_an_error_is_told_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert place.run("--layers", "1,1") == UsageError.exit_code
    said = capsys.readouterr()
    assert (said.out, said.err.count("each once")) == ("", 1)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("DYING", FINDINGS, "exit code 3"),
        ("FULL", DeliveryError.exit_code, "no space left."),
        ("FORGETFUL", FINDINGS, "1 samples were not delivered, the first of them 1"),
        ("STUTTERING", FINDINGS, "sample 0 came as 0.safetensors of 1 tokens"),
    ],
)
def test_engine_that_fails_leaves_what_it_delivered(
    place: Place, client: Callable[[str], None], name: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client(name)
    assert place.run() == code
    out, error = capsys.readouterr()
    assert said in error
    _require_last(out, "failed", code, said)
    there = place.journal() if (place.output / "samples.jsonl").exists() else []
    if there:
        assert f"{len(there)} of {SAMPLES} samples are whole in {place.output}" in error
        assert place.manifest()["complete"] is False
        assert place.manifest()["delivered"]["samples"] == len(there)
    files = [name for name in place.names() if name.endswith((".safetensors", ".partial"))]
    assert files == sorted(row["file"] for row in there)
    assert conduct.LOGS in place.names()
    client("SOUND")
    assert place.run() == 0
    _require_whole(place)


def test_nothing_is_left_of_a_run_that_did_not_boot(place: Place, client: Callable[[str], None]) -> None:
    client("NONE")
    assert place.run() == FINDINGS
    assert place.names() == [conduct.LOGS]
    client("SOUND")
    assert place.run("--tensor-parallel-size", "2") == 0, "nothing was delivered that binds to other settings"


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


def test_what_says_only_how_fast_may_change(place: Place, client: Callable[[str], None]) -> None:
    client("FULL")
    place.run()
    client("SOUND")
    assert place.run("--max-num-seqs", "4", "--max-num-batched-tokens", "16", "--executor-backend", "uni") == 0
    assert place.manifest()["engine"]["max_num_seqs"] == 4


def test_prompts_written_otherwise_are_the_same(place: Place, client: Callable[[str], None]) -> None:
    client("FULL")
    place.run()
    client("SOUND")
    text = place.prompts.read_text(encoding="utf-8").replace("prompt_token_ids", "input_ids")
    place.prompts.write_text(text, encoding="utf-8")
    assert place.run() == 0


def test_shards_share_a_folder(place: Place) -> None:
    for number in (2, 3, 1):
        assert place.run("--shard", f"{number}/3") == 0
    plain = {name for name in WHOLE if name not in {"manifest.json", "samples.jsonl"}}
    noted = {
        f"{kind}-{number}-of-3.{end}"
        for number in (1, 2, 3)
        for kind, end in (("manifest", "json"), ("samples", "jsonl"))
    }
    assert set(place.names()) == plain | noted
    rows = [row["index"] for number in (1, 2, 3) for row in place.journal(f"-{number}-of-3")]
    assert sorted(rows) == list(range(SAMPLES))
    assert place.manifest("-2-of-3")["shard"] == "2/3"


def test_shard_does_not_touch_anothers_files(place: Place) -> None:
    place.output.mkdir()
    place.run("--shard", "1/2")
    (place.output / "15.safetensors.partial").write_bytes(b"in the making")
    assert place.run("--shard", "1/2") == 0
    assert "15.safetensors.partial" in place.names()
    assert place.run("--shard", "2/2") == 0
    assert "15.safetensors.partial" not in place.names()


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
    _require_last(said.out, "refused", UsageError.exit_code, told)
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
    _require_last(said.out, "refused", GateRefusedError.exit_code, "no evidence")
    assert not place.output.exists()
    ((request, named),) = asked
    assert request.engine_arguments == ("gpu_memory_utilization", "quantization"), request
    assert shlex.split(named.pop("again"))[-len(to_paste) :] == to_paste
    assert named == {"places": [Path("some.json")], "run_missing": run_missing}
    assert (request.client, request.layers, request.longest_prompt) == ("toy_extraction:SOUND", (3, 0), 9)


@pytest.mark.parametrize("client_name", ["SOUND", "NONE", "FULL"])
@pytest.mark.parametrize("others", [[], ["--shard", "1/2"]], ids=["all", "1/2"])
def test_what_is_the_users_stays(
    place: Place, client: Callable[[str], None], client_name: str, others: list[str]
) -> None:
    """Folders and files of any name that no sample has, before a run and after it, however that ends."""
    theirs = [
        place.output / folder / "mine.txt"
        for folder in ("logs", "logs-1-of-2", "shards", "manifest", ".cache", "harness-logs", "samples", "work")
    ]
    theirs += [place.output / name for name in ("engine.log", "notes.json", "samples.txt", "a.partial", "x.lock")]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine", encoding="utf-8")
    for name in (client_name, "SOUND", "SOUND"):
        client(name)
        place.run(*others)
        gone = [str(path) for path in theirs if not path.exists()]
        assert gone == [], f"{name} removed them"


@pytest.mark.parametrize("left", [SAMPLES - 1, 0])
def test_manifest_says_what_is_missing_before_a_run_may_start(
    place: Place, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """However the run ends then, refused or killed in any way, nothing else says so; and nothing was removed."""
    place.run()
    for index in range(SAMPLES - left):
        (place.output / f"{index}.safetensors").unlink()
    (place.output / "0.safetensors.partial").write_bytes(b"half")
    with (place.output / "samples.jsonl").open("a", encoding="utf-8") as journal:
        journal.write('{"index": 9, "file')
    told = place.manifest()
    before = {path.name: path.read_bytes() for path in place.output.iterdir() if path.suffix != ".json"}

    def refuse(*_arguments: object) -> NoReturn:
        assert place.manifest()["complete"] is False
        raise GateRefusedError("no evidence")

    with monkeypatch.context() as patched:
        patched.setattr(extract, "_permit", refuse)
        assert place.run() == GateRefusedError.exit_code
    now = place.manifest()
    assert {name for name in told if told[name] != now[name]} == {"complete"}
    held = {path.name: path.read_bytes() for path in place.output.iterdir() if path.suffix != ".json"}
    assert held == before
    assert place.run() == 0
    _require_whole(place)


def test_run_that_is_refused_unbinds_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a journal no sample counts; the manifest still says of what they are."""
    place.run()
    (place.output / "samples.jsonl").unlink()
    before = place.digests()

    def refuse(*_arguments: object) -> NoReturn:
        raise GateRefusedError("no evidence")

    with monkeypatch.context() as patched:
        patched.setattr(extract, "_permit", refuse)
        assert place.run() == GateRefusedError.exit_code
    assert place.run("--layers", "1") == UsageError.exit_code
    assert place.digests() == before


@pytest.mark.parametrize("name", ["NONE", "DYING"])
def test_manifest_is_not_complete_after_a_run_that_failed(
    place: Place, client: Callable[[str], None], name: str
) -> None:
    place.run()
    for index in (0, 6):
        (place.output / f"{index}.safetensors").unlink()
    client(name)
    assert place.run() == FINDINGS
    assert place.manifest()["complete"] is False


def test_folder_that_takes_nothing_is_an_error_of_delivery(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run()
    (place.output / "3.safetensors").unlink()

    def full(*_arguments: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "write", full)
        assert place.run() == DeliveryError.exit_code
    assert f"cannot go on in {place.output}: No space left on device; nothing was removed." in capsys.readouterr().err
    assert len(place.journal()) == SAMPLES
    assert place.run() == 0
    _require_whole(place)


def test_second_run_on_a_folder_is_refused_while_the_first_goes_on(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    with folder.opened(place.output, Shard()):
        assert place.run() == UsageError.exit_code
        assert f"process {os.getpid()} on" in capsys.readouterr().err
        assert place.run("--shard", "1/2") == 0, "another shard's is another lock"
    assert [name for name in place.names() if "lock" in name and "safetensors" not in name] == []


def test_lock_is_waited_for_while_a_killed_run_ends(place: Place, dead: int, tmp_path: Path) -> None:
    """The command is gone, what it had started is about to be: it has the lock, and may still write."""
    place.output.mkdir()
    lock = place.output / ".lock"
    lock.write_text(
        json.dumps({"pid": dead, "machine": os.uname().nodename, "work": str(tmp_path)}), encoding="utf-8"
    )
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = subprocess.Popen(_child("SOUND", place), stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(2.0)
        assert place.names() == [".lock"]
    out, _ = waiting.communicate()
    assert waiting.returncode == 0, out
    assert tmp_path.exists(), "only a folder that an extraction made may be removed"
    _require_whole(place)


def _child(client: str, place: Place) -> list[str]:
    paths = map(str, (place.model, place.prompts, place.output))
    return [sys.executable, toy.__file__, f"toy_extraction:{client}", *paths]


def test_killed_at_any_point_it_goes_on(place: Place) -> None:
    """Killed from its start to past its end, and nothing is lost or doubled."""
    chance = random.Random(4)  # noqa: S311 - the same points in every run, as far as clocks go.
    started = time.monotonic()
    subprocess.run(_child("SLOW", place), check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - started
    undisturbed = place.digests()
    for path in place.output.iterdir():
        path.unlink()
    for _ in range(12):
        run = subprocess.Popen(_child("SLOW", place), stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.0, took))
        run.kill()
        run.wait()
        for row in place.journal() if (place.output / "samples.jsonl").exists() else []:
            assert undisturbed[row["file"]] == place.digests()[row["file"]]
    subprocess.run(_child("SLOW", place), check=True, stdout=subprocess.DEVNULL)
    assert place.digests() == undisturbed
    _require_whole(place)


def test_interrupted_it_closes_and_says_how_to_go_on(place: Place) -> None:
    run = subprocess.Popen(_child("SLOW", place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    noted = place.output / "samples.jsonl"
    while not noted.exists() or not noted.stat().st_size:
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    out, _err = run.communicate(timeout=30)
    assert run.returncode == INTERRUPTED
    there = len(place.journal())
    assert 0 < there < SAMPLES
    said = json.loads(out.splitlines()[-1])
    assert said["event"] == "interrupted"
    assert f"{there} of {SAMPLES} samples are whole in {place.output}, and the same command goes on" in said["text"]
    assert [name for name in place.names() if name.endswith(".partial")] == []
    assert place.run() == 0
    _require_whole(place)


def test_killed_it_takes_its_engine_along_before_the_lock(place: Place) -> None:
    run = subprocess.Popen(_child("SLOW", place), stdout=subprocess.DEVNULL)
    while not (marks := list(place.output.glob(f"{conduct.LOGS}/*.pid"))):
        time.sleep(0.01)
    host = int(marks[0].stem)
    run.kill()
    run.wait()
    with folder.opened(place.output, Shard()):
        assert processes.ended([host]) == [host]
