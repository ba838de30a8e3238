"""The commands that compare and print surfaces, on those that the snapshots keep."""

from __future__ import annotations

import json

import pytest
import snapshots_on_disk

from harness import cli, wheels


@pytest.fixture(autouse=True)
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Surfaces come from the snapshots."""
    monkeypatch.setattr(wheels, "surface_of", lambda build: snapshots_on_disk.surfaces()[build.release])


def test_surface_prints_the_file_that_is_committed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["surface", "0.33.0"]) == 0
    file = snapshots_on_disk.SNAPSHOTS / "0.33.0" / "test_signatures.json"
    assert capsys.readouterr().out == file.read_text(encoding="utf-8")


def test_diff_as_json_says_who_is_hit_and_what_was_not_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "0.32.0", "0.33.0", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["before"], said["after"], said["unrecorded"]) == ("0.32.0", "0.33.0", ["0.33.0"]), said
    moved = {each["name"]: each for each in said["changes"] if each["kind"] == "moved"}
    assert moved["get_kv_cache_configs"]["used_by"] == ["executor"], moved
    assert moved["_get_kv_cache_groups_uniform_spec"]["used_by"] == ["speculators 0.3.0"], moved


@pytest.mark.parametrize("form", [[], ["--markdown"]])
def test_diff_says_that_a_release_was_not_run(form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "0.32.0", "0.33.0", *form]) == 0
    assert "Nothing was recorded live on 0.33.0" in capsys.readouterr().out
    assert cli.main(["diff", "0.11.0", "0.11.1", *form]) == 0
    said = capsys.readouterr().out
    assert "Nothing was recorded live" not in said, said
    assert "one list less" in said, said


def test_silent_change_stands_before_what_was_only_added(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "0.11.1", "0.12.0"]) == 0
    said = capsys.readouterr().out
    order = [said.index(words) for words in ("is_encoder_decoder had", "None -> True", "parameter added", "\nadded")]
    assert order == sorted(order), said
