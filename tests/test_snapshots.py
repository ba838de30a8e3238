from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import flow
import pytest
from syrupy.data import Snapshot, SnapshotCollection

from harness import snapshots
from harness.settings import PP2, Group

if TYPE_CHECKING:
    from pathlib import Path

RECORDING = """
    from harness.structure import describe

    def test_reply(engine, prompts, matches):
        states = {key: value for key, value in engine.capture(prompts)[0].states.items()}
        matches({"reply": describe([states]), "é": 1}, cause="c", advice="a")

    def test_other(engine, matches):
        matches(["b", "a"], cause="c", advice="a")
"""
HOST_BY_CHECKPOINT = """
from harness import remote

start = remote.RemoteEngine.__init__
kinds = {True: "toys:ON_V1", False: "toys:ON_V2"}
remote.RemoteEngine.__init__ = lambda self, client, spec, **named: start(
    self, kinds["kimi" in str(named.get("log"))], spec, **named
)
"""
OURS = ("executor-mp-tp1", "executor-mp-tp2")
FILES = {"test_reply.py": RECORDING, "conftest.py": flow.HOST_A_TOY}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    suite = flow.write_suite(tmp_path_factory.mktemp("recorded"), FILES)
    code, record = flow.run(suite, flow.OURS, jobs=2, update_snapshots=True)
    assert code == 0, record
    return suite


def _file(suite: Path) -> Path:
    return suite / "snapshots" / flow.RELEASE / "test_reply.json"


def _copy(recorded: Path, folder: Path, change: str = "") -> Path:
    """The recorded suite with a change to its cases, ``before -> after``."""
    before, _, after = change.partition(" -> ")
    assert before in RECORDING
    text = RECORDING.replace(before, after) if change else RECORDING
    suite = flow.write_suite(folder, {**FILES, "test_reply.py": text})
    _file(suite).parent.mkdir(parents=True)
    _file(suite).write_bytes(_file(recorded).read_bytes())
    return suite


def test_recorded_file_is_readable_sorted_and_complete(recorded: Path) -> None:
    text = _file(recorded).read_text(encoding="utf-8")
    rows = json.loads(text)
    assert list(rows) == [
        *("test_other[executor-mp-tp1]", "test_other[executor-mp-tp2]"),
        *("test_reply[executor-mp-tp1]", "test_reply[executor-mp-tp2]"),
    ]
    assert rows["test_reply[executor-mp-tp1]"] == {
        "reply": [{"4": "tensor float32 [3, 8]", "0": "tensor float32 [3, 8]", "2": "tensor float32 [3, 8]"}],
        "é": 1,
    }
    assert '"é"' in text
    assert text.endswith("}\n")


def test_nothing_but_the_file_is_left(recorded: Path) -> None:
    left = [path.name for path in _file(recorded).parent.iterdir() if not path.name.endswith(".lock")]
    assert left == ["test_reply.json"]


def test_equal_structures_conform(recorded: Path, tmp_path: Path) -> None:
    suite = _copy(recorded, tmp_path)
    code, record = flow.run(suite, flow.OURS, keyword="mp-tp2")
    assert (code, record["verdict"]) == (0, "conforms"), record
    assert _file(suite).read_bytes() == _file(recorded).read_bytes()


def test_changed_structure_is_a_finding_with_the_path(recorded: Path, tmp_path: Path) -> None:
    suite = _copy(recorded, tmp_path, '"reply": describe([states]) -> "reply": describe([[states, None]])')
    code, record = flow.run(suite, flow.OURS[:1], clients=("executor",))
    assert (code, flow.outcomes(record)) == (1, {"test_reply": "failed", "test_other": "passed"})
    finding = flow.case(record, "test_reply")["finding"]
    assert finding["expected"] == "the structure of test_reply[executor-mp-tp2] in 0.16.0/test_reply.json"
    assert finding["got"].startswith("reply[0]"), finding
    assert (finding["cause"], finding["advice"]) == ("c", "a")
    assert _file(suite).read_bytes() == _file(recorded).read_bytes()


def test_the_story_is_one_line(recorded: Path, tmp_path: Path) -> None:
    suite = _copy(recorded, tmp_path, "describe([states]) -> describe(states)")
    _code, record = flow.run(suite, flow.OURS[:1], clients=("executor",))
    got = flow.case(record, "test_reply")["finding"]["got"]
    assert got.startswith("reply: one list less"), got
    assert "\n" not in got, got


def test_missing_snapshot_says_how_to_record_one(recorded: Path, tmp_path: Path) -> None:
    suite = _copy(recorded, tmp_path, "test_other -> test_new")
    code, record = flow.run(suite, flow.OURS[:1], clients=("executor",))
    assert (code, flow.outcomes(record)) == (1, {"test_reply": "passed", "test_new": "failed"})
    finding = flow.case(record, "test_new")["finding"]
    assert finding["got"] == "there is none"
    assert "--update-snapshots" in finding["advice"]
    assert _file(suite).read_bytes() == _file(recorded).read_bytes()


@pytest.mark.parametrize("jobs", [1, 2])
def test_unused_snapshot_is_no_pass_and_is_named(
    recorded: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], jobs: int
) -> None:
    suite = _copy(recorded, tmp_path, "test_other -> unused")
    code, record = flow.run(suite, flow.OURS, jobs=jobs)
    assert (code, record["verdict"]) == (1, "incomplete"), record
    assert set(flow.outcomes(record).values()) == {"passed"}
    said = capfd.readouterr().out
    assert "0.16.0/test_reply.json, so the run is no pass: test_other[executor-mp-tp1], test_other[" in said, said
    assert "--update-snapshots" in said, said


@pytest.mark.parametrize(
    ("jobs", "how"),
    [
        (1, "assert not prompts"),
        (2, "assert not prompts"),
        (1, "os.kill(os.getpid(), signal.SIGINT)"),
        (2, "os.kill(os.getpid(), signal.SIGKILL)"),
    ],
)
def test_what_a_run_did_not_come_to_is_not_called_unused(
    recorded: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str, jobs: int
) -> None:
    """A case that fails before it asks, ^C, a worker of pytest-xdist that crashes: none shows that it is dead."""
    change = f"def test_reply(engine, prompts, matches): -> def test_reply(engine, prompts, matches):\n        {how}"
    suite = _copy(recorded, tmp_path, change)
    case = suite / "cases" / "test_reply.py"
    case.write_text(f"import os\nimport signal\n{case.read_text(encoding='utf-8')}", encoding="utf-8")
    code, _record = flow.run(suite, flow.OURS, jobs=jobs)
    assert code != 0
    assert "no case asked" not in capfd.readouterr().out


def test_what_a_keyword_leaves_out_is_neither_unused_nor_removed(recorded: Path, tmp_path: Path) -> None:
    """Markers are keywords too, and no part of a snapshot's name."""
    marked = "import pytest\n\n    @pytest.mark.ends_engine\n    def test_other"
    for update in (False, True):
        suite = _copy(recorded, tmp_path / str(update), f"def test_other -> {marked}")
        code, record = flow.run(suite, flow.OURS, keyword="not ends_engine", update_snapshots=update)
        assert (code, record["verdict"], list(flow.outcomes(record))) == (0, "conforms", ["test_reply"]), record
        assert _file(suite).read_bytes() == _file(recorded).read_bytes()


def test_a_run_that_uses_every_snapshot_names_none(
    recorded: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert flow.run(_copy(recorded, tmp_path), flow.OURS)[0] == 0
    assert "no case asked" not in capfd.readouterr().out


def test_snapshots_of_engines_that_were_left_out_are_not_unused(recorded: Path, tmp_path: Path) -> None:
    code, record = flow.run(_copy(recorded, tmp_path), flow.OURS[:1], clients=("executor",))
    assert (code, record["verdict"]) == (0, "conforms"), record


def test_updating_one_case_keeps_the_others(recorded: Path, tmp_path: Path) -> None:
    suite = _copy(recorded, tmp_path, '["b", "a"] -> ["c"]')
    code, _record = flow.run(suite, flow.OURS[:1], keyword="test_other", update_snapshots=True, clients=("executor",))
    assert code == 0
    before, after = (json.loads(_file(folder).read_text(encoding="utf-8")) for folder in (recorded, suite))
    assert after == {**before, "test_other[executor-mp-tp2]": ["c"]}


# Somebody else's client.

THEIRS = flow.groups("toys:SOUND")


def test_another_client_is_held_to_what_ours_recorded(recorded: Path, tmp_path: Path) -> None:
    code, record = flow.run(_copy(recorded, tmp_path), THEIRS, clients=("toys:SOUND",))
    assert (code, set(flow.outcomes(record).values())) == (0, {"passed"}), record


@pytest.mark.parametrize(
    ("client", "beside", "held_to"),
    [
        ("ON_V1", "v1", "c"),
        ("ON_V2", "v1", "b"),
        ("ON_V1", "v2", "b"),
        ("ON_V2", "v2", "c"),
        ("ON_V1", "", "b"),
        ("SOUND", "v1", "b"),
    ],
    ids=lambda value: value or "none",
)
def test_an_engine_of_another_model_runner_is_held_to_what_was_recorded_with_that(
    recorded: Path, tmp_path: Path, client: str, beside: str, held_to: str
) -> None:
    suite = _copy(recorded, tmp_path, '["b", "a"] -> ["c", "a"]')
    (suite / "cases" / "conftest.py").unlink()  # Else another toy would be hosted.
    rows = {
        **json.loads(_file(suite).read_text(encoding="utf-8")),
        **{f"test_other[{each}]": ["c", "a"] for each in OURS},
    }
    if beside:
        folder = suite / "snapshots" / f"{flow.RELEASE}-{beside}"
        folder.mkdir()
        (folder / "test_reply.json").write_text(json.dumps(rows), encoding="utf-8")
    _code, record = flow.run(suite, flow.groups(f"toys:{client}"), clients=(f"toys:{client}",))
    passes = "passed" if held_to == "c" else "failed"
    assert flow.outcomes(record) == {"test_reply": "passed", "test_other": passes}, record["cases"]


@pytest.mark.parametrize("update", [False, True])
def test_all_engines_beside_one_of_another_model_runner(recorded: Path, tmp_path: Path, update: bool) -> None:
    """Of the other record, that engine is held to what it has of its setting; the rest is not unused, nor removed."""
    suite = _copy(recorded, tmp_path, '["b", "a"] -> ["b", "a"]')
    (suite / "cases" / "conftest.py").write_text(HOST_BY_CHECKPOINT, encoding="utf-8")
    beside = suite / "snapshots" / f"{flow.RELEASE}-v1" / "test_reply.json"
    beside.parent.mkdir()
    rows = {**json.loads(_file(recorded).read_text(encoding="utf-8")), "test_of_the_other[executor-mp-tp1]": 1}
    beside.write_text(json.dumps(rows), encoding="utf-8")
    engines = [*flow.OURS, replace(flow.OURS[0], model_kind="kimi-k25")]
    code, record = flow.run(suite, engines, update_snapshots=update)
    assert (code, record["verdict"]) == (0, "conforms"), record
    assert json.loads(beside.read_text(encoding="utf-8")) == rows
    assert _file(suite).read_bytes() == _file(recorded).read_bytes()


def test_an_update_of_the_runs_own_leaves_those_of_a_model_runner(recorded: Path, tmp_path: Path) -> None:
    suite = _copy(recorded, tmp_path, '["b", "a"] -> ["c", "a"]')
    folder = suite / "snapshots" / f"{flow.RELEASE}-v1"
    folder.mkdir()
    (folder / "test_reply.json").write_text("{}\n", encoding="utf-8")
    code, _record = flow.run(suite, flow.OURS, update_snapshots=True)
    assert code == 0
    assert (folder / "test_reply.json").read_text(encoding="utf-8") == "{}\n"


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ("describe([states]) -> describe(states)", "reply: one list less"),
        ('"é": 1 -> "é": True', "expected 1, got True"),
        ("def test_reply -> def test_new", "there is none"),
    ],
)
def test_another_client_that_differs_is_a_finding(recorded: Path, tmp_path: Path, change: str, got: str) -> None:
    code, record = flow.run(_copy(recorded, tmp_path, change), THEIRS, clients=("toys:SOUND",))
    assert code == 1
    (failed,) = [case for case in record["cases"] if case["outcome"] == "failed"]
    assert got in failed["finding"]["got"], failed


def test_another_client_that_gives_nothing_is_not_held_to_nothing(tmp_path: Path) -> None:
    suite = flow.write_suite(
        tmp_path, {"test_x.py": "def test_a(engine, matches): matches(None, cause='', advice='')"}
    )
    code, record = flow.run(suite, THEIRS, clients=("toys:SOUND",))
    assert (code, flow.outcomes(record)) == (1, {"test_a": "failed"})


def test_another_client_records_nothing(recorded: Path, tmp_path: Path) -> None:
    suite = _copy(recorded, tmp_path, "describe([states]) -> describe(states)")
    flow.run(suite, THEIRS, clients=("toys:SOUND",), update_snapshots=True)
    assert _file(suite).read_bytes() == _file(recorded).read_bytes()


def test_another_checkpoint_is_held_to_what_was_recorded_on_the_first(recorded: Path, tmp_path: Path) -> None:
    kimi = [replace(group, model_kind="kimi-k25") for group in flow.OURS]
    code, record = flow.run(_copy(recorded, tmp_path), kimi, model_kind="kimi-k25")
    assert (code, record["verdict"]) == (0, "conforms"), record


# The extension by itself.


def _collection(path: Path, rows: dict[str, Any]) -> SnapshotCollection:
    collection = SnapshotCollection(location=str(path))
    for name, value in rows.items():
        collection.add(Snapshot(name=name, data=json.dumps(value)))
    return collection


def test_write_read_and_delete(tmp_path: Path) -> None:
    extension_class = snapshots.in_folder(tmp_path)
    extension = extension_class()
    path = tmp_path / "test_x.json"
    extension_class.write_snapshot_collection(snapshot_collection=_collection(path, {"b": [1], "a": None}))
    extension_class.write_snapshot_collection(snapshot_collection=_collection(path, {"b": [2]}))
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": None, "b": [2]}
    assert [each.name for each in extension.read_snapshot_collection(snapshot_location=str(path))] == ["a", "b"]
    read = extension.read_snapshot_data_from_location
    assert read(snapshot_location=str(path), snapshot_name="b", session_id="") == extension.serialize([2])
    assert read(snapshot_location=str(path), snapshot_name="c", session_id="") is None
    extension.delete_snapshots(snapshot_location=str(path), snapshot_names={"a"})
    assert snapshots.stored(tmp_path, "test_x", "a") == (False, None)
    assert snapshots.stored(tmp_path, "test_x", "b") == (True, [2])
    extension.delete_snapshots(snapshot_location=str(path), snapshot_names={"b"})
    assert not path.exists()


def test_each_folder_has_a_class_of_its_own(tmp_path: Path) -> None:
    one, other = snapshots.in_folder(tmp_path / "1"), snapshots.in_folder(tmp_path / "2")
    assert (one.folder, other.folder) == (tmp_path / "1", tmp_path / "2")


def test_a_run_held_to_what_another_release_did(recorded: Path, tmp_path: Path) -> None:
    """Its own snapshots would fit; the other's do not, and what else the other recorded is not unused."""
    suite = _copy(recorded, tmp_path)
    other = suite / "snapshots" / "0.11.0" / "test_reply.json"
    other.parent.mkdir()
    rows = json.loads(_file(suite).read_text(encoding="utf-8"))
    rows["test_other[executor-mp-tp2]"] = [["b", "a"]]
    rows["test_gone[executor-mp-tp2]"] = 1
    other.write_text(json.dumps(rows), encoding="utf-8")
    assert flow.run(suite, flow.OURS)[0] == 0
    code, record = flow.run(suite, flow.OURS, snapshots_of="0.11.0")
    assert code == 1
    assert record["settings"]["snapshots_of"] == "0.11.0"
    (broken,) = [case for case in record["cases"] if case["outcome"] != "passed"]
    assert broken["id"] == "test_reply.py::test_other[executor-mp-tp2]"
    assert "one list less" in broken["finding"]["got"], broken
    assert "in 0.11.0/test_reply.json" in broken["finding"]["expected"], broken


def test_structure_in_another_dtype_is_as_it_is_recorded_and_a_cast_is_not() -> None:
    recorded = {"states": "tensor float32 [5, 64]", "lost": ["float32", [5, 64], 1], "ids": "tensor int64 [5]"}
    seen = {"states": "tensor bfloat16 [5, 64]", "lost": ["bfloat16", [5, 64], 1], "ids": "tensor int64 [5]"}
    assert snapshots.as_recorded(seen, "bfloat16", "float32") == recorded
    assert snapshots.as_recorded(recorded, "float32", "float32") == recorded
    assert snapshots.as_recorded(recorded, "bfloat16", "float32") == seen


def test_what_is_opened_on_request_is_recorded_apart_and_missed_by_nobody(recorded: Path, tmp_path: Path) -> None:
    """Beside the release's own folder, so that a run without it has no unused snapshot."""
    suite = _copy(recorded, tmp_path)
    staged = [Group(client="executor", setting=PP2)]
    code, record = flow.run(suite, staged, pipeline_parallel_size=2)
    assert code == 1, "without a snapshot"
    assert "--update-snapshots" in flow.case(record, "test_reply")["finding"]["advice"]
    assert flow.run(suite, staged, pipeline_parallel_size=2, update_snapshots=True)[0] == 0
    apart = json.loads(
        (suite / "snapshots" / "mp-pp2" / flow.RELEASE / "test_reply.json").read_text(encoding="utf-8")
    )
    assert list(apart) == ["test_other[executor-mp-pp2]", "test_reply[executor-mp-pp2]"]
    assert flow.run(suite, staged, pipeline_parallel_size=2)[0] == 0
    assert flow.run(suite, flow.OURS)[0] == 0
    assert _file(suite).read_bytes() == _file(recorded).read_bytes()
