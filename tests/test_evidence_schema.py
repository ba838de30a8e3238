"""The published schema of evidence: it takes real records, and says field by field what the dataclasses do."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from typing import TYPE_CHECKING, Any, get_args

import flow
import gated
import jsonschema
import pytest

from harness import evidence, identity
from harness.clients.contract import EngineSpec
from harness.evidence import CaseResult, EngineResult, Evidence, Outcome
from harness.faults import recording
from harness.findings import Finding

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: dict[str, Any] = json.loads(
    importlib.resources.files("harness").joinpath("evidence.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def _errors(body: dict[str, Any]) -> list[str]:
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in VALIDATOR.iter_errors(body)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a run with a case of every outcome that a run can give."""
    suite = flow.write_suite(
        tmp_path_factory.mktemp("real"),
        {
            "test_x.py": """
                import pytest
                from harness.errors import NotApplicableError
                from harness.findings import expect

                def test_passes(engine): pass
                def test_plain(): pass
                def test_fails(engine): expect(False, expected="a", got="b", cause="c", advice="d")
                def test_errs(no_such_fixture): pass
                def test_is_skipped(engine): pytest.skip("no time")
                def test_does_not_apply(engine): raise NotApplicableError("not mine")
                """
        },
    )
    _code, record = flow.run(suite, flow.groups("toys:SOUND", 2), keyword="test")
    return record


def test_the_schema_is_one() -> None:
    VALIDATOR.check_schema(SCHEMA)


def test_real_record_is_valid(real: dict[str, Any]) -> None:
    assert _errors(real) == []
    outcomes = {case["outcome"] for case in real["cases"]}
    assert outcomes == set(get_args(Outcome)) - {"known-fault"}
    assert {engine["spec"]["executor_backend"] for engine in real["engines"]} == {"mp"}


def test_record_of_the_gates_tests_is_valid(tmp_path: Path) -> None:
    world = gated.World(tmp_path)
    world.write()
    assert _errors(evidence.read(world.path)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 1},
        {"verdict": "fine"},
        {"more": 1},
        {"digest": "abc"},
        {"started": 5},
        {"cases": [{"id": "x", "outcome": "fine", "seconds": 1, "reason": "", "finding": None}]},
        {"engines": [{"group": "x"}]},
        {"environment": {}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_no_record_is_not_valid(real: dict[str, Any], change: dict[str, Any]) -> None:
    assert _errors({**real, **change}) != []


@pytest.mark.parametrize("missing", SCHEMA["required"])
def test_record_without_a_field_is_not_valid(real: dict[str, Any], missing: str) -> None:
    assert _errors({name: value for name, value in real.items() if name != missing}) != []


@pytest.mark.parametrize(
    ("kind", "place"),
    [(CaseResult, "case"), (EngineResult, "engine"), (Finding, "finding"), (EngineSpec, "spec")],
)
def test_schema_has_the_fields_of_each_part(kind: Any, place: str) -> None:
    part = SCHEMA["$defs"][place]
    fields = [field.name for field in dataclasses.fields(kind)]
    assert list(part["properties"]) == fields
    assert part["additionalProperties"] is False
    assert part.get("required", fields) == fields


def test_schema_has_the_fields_of_the_record() -> None:
    fields = {field.name for field in dataclasses.fields(Evidence)}
    assert set(SCHEMA["properties"]) == fields | {"schema", "verdict", "digest"}
    assert set(SCHEMA["required"]) == set(SCHEMA["properties"])
    assert SCHEMA["properties"]["schema"] == {"const": evidence.SCHEMA}


def test_schema_has_the_outcomes() -> None:
    assert SCHEMA["$defs"]["case"]["properties"]["outcome"] == {"enum": list(get_args(Outcome))}


def test_schema_has_what_a_run_is_bound_to() -> None:
    part = SCHEMA["$defs"]["environment"]
    bound = identity.of_run("cpu", [], {})
    assert set(part["properties"]) == {*flow.FACTS, *bound}
    assert part["required"] == list(part["properties"])


def test_facts_of_the_tests_have_the_fields_of_real_ones() -> None:
    assert set(flow.FACTS) == set(recording.read().facts)
