from __future__ import annotations

import re
from dataclasses import replace

import pytest
from conftest import TESTS

from harness import known_faults, releases, settings
from harness.known_faults import KnownFault

CASES = TESTS.parent / "cases"
GROUPS = [
    *(group.name for kind in settings.MODEL_KINDS for group in settings.plan([], [], kind)),
    *(group.name for group in settings.plan([], [], on_request=[settings.PP2])),
]


def _cases() -> list[str]:
    """Every case there is, without parameters."""
    return [
        f"{path.name}::{name}"
        for path in CASES.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]


@pytest.mark.parametrize("fault", known_faults.load(), ids=lambda fault: f"{fault.releases[0]} {fault.cases[0]}")
def test_listed_fault_is_of_pinned_releases_and_has_evidence(fault: KnownFault) -> None:
    for version in fault.releases:
        assert fault.device in releases.find(version).builds, (version, fault)
    assert len(fault.cause.split()) > 5, fault
    assert fault.evidence.strip(), fault


@pytest.mark.parametrize("fault", known_faults.load(), ids=lambda fault: f"{fault.releases[0]} {fault.cases[0]}")
def test_listed_fault_covers_a_case_on_an_engine_that_is_run(fault: KnownFault) -> None:
    ids = [
        *(f"test_values.py::test_values[{group}-layer{layer}]" for group in GROUPS for layer in range(5)),
        *(f"test_chunks.py::test_long_prompt[{group}-3-budgets]" for group in GROUPS),
        *(f"{case}[{group}]" for case in _cases() for group in GROUPS),
    ]
    for pattern in fault.cases:
        alone = replace(fault, cases=(pattern,))
        covered = [case for case in ids if alone.covers(fault.releases[0], fault.device, case)]
        assert covered, f"{pattern} matches no case: a bracket is a pattern, write it [[] and a closing one ]"


def test_fault_covers_its_releases_device_and_cases_only() -> None:
    fault = KnownFault(
        releases=("0.12.0", "0.13.0"),
        device="cpu",
        cases=("test_x.py::test_y[[]llm-uni-tp1-*",),
        evidence="e",
        cause="c",
    )
    case = "test_x.py::test_y[llm-uni-tp1-layer3]"
    assert fault.covers("0.12.0", "cpu", case)
    assert fault.covers("0.13.0", "cpu", case)
    assert not fault.covers("0.14.1", "cpu", case)
    assert not fault.covers("0.12.0", "cuda", case)
    assert not fault.covers("0.12.0", "cpu", "test_x.py::test_y[executor-uni-tp1-layer3]")
    assert not fault.covers("0.12.0", "cpu", "test_x.py::test_yy[llm-uni-tp1-layer3]")


def test_first_fault_that_covers_a_case_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = tuple(
        KnownFault(releases=("0.12.0",), device="cpu", cases=(case,), evidence="e", cause=case)
        for case in ("test_a.py::*", "*")
    )
    monkeypatch.setattr(known_faults, "load", lambda: faults)
    found = known_faults.of_case("0.12.0", "cpu", "test_a.py::test_x")
    assert found is faults[0]
    assert known_faults.of_case("0.12.0", "cpu", "test_b.py::test_x") is faults[1]
    assert known_faults.of_case("0.16.0", "cpu", "test_a.py::test_x") is None
