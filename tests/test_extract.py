"""`harness extract` on a toy of an engine: what it writes, what it says and with what it exits."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import extracting
import pytest
import toy_extraction as toy
from extracting import SAMPLES, WHOLE, Place, require_last, require_whole

from harness import identity
from harness.commands import extract
from harness.errors import FINDINGS, DeliveryError, EnvironmentUnusableError, HarnessError, UsageError
from harness.extraction import conduct
from harness.extraction.layouts import LAYOUTS
from harness.extraction.plan import AXES

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("toys")
place, client = extracting.place, extracting.client


def test_a_run(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.run() == 0
    require_whole(place)
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


def test_layouts_of_the_command_are_those_that_there_are() -> None:
    assert list(extract.LAYOUTS) == list(LAYOUTS)
    assert set(AXES) == set(LAYOUTS)


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
    require_last(capsys.readouterr().out, "failed", code, said)


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
    require_last(out, "failed", code, said)
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
    require_whole(place)


def test_nothing_is_left_of_a_run_that_did_not_boot(place: Place, client: Callable[[str], None]) -> None:
    client("NONE")
    assert place.run() == FINDINGS
    assert place.names() == [conduct.LOGS]
    client("SOUND")
    assert place.run("--tensor-parallel-size", "2") == 0, "nothing was delivered that binds to other settings"


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
