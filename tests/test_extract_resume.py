"""What an extraction finds in its folder of a run before: what it keeps, drops, and does again."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, NoReturn

import extracting
import pytest
from extracting import SAMPLES, Place, require_whole

from harness.commands import extract
from harness.errors import FINDINGS, DeliveryError, GateRefusedError, UsageError
from harness.extraction import stored
from harness.extraction.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("toys")
place, client = extracting.place, extracting.client


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
    require_whole(place)


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
    require_whole(place)


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
    require_whole(place)


def test_sample_that_is_noted_twice_counts_once(place: Place) -> None:
    place.run()
    noted = place.output / "samples.jsonl"
    noted.write_text(noted.read_text(encoding="utf-8") * 2, encoding="utf-8")
    assert place.run() == 0
    require_whole(place)
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
    require_whole(place)


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
    require_whole(place)


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
    require_whole(place)
