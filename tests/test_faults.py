from __future__ import annotations

import ast
import importlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from conftest import TESTS

from harness import clients, conducting, endings, identity, sources
from harness.cli import main
from harness.errors import INTERRUPTED
from harness.evidence import BROKEN, CaseResult, Evidence, Outcome
from harness.faults import catalogue, running
from harness.faults.catalogue import Fault, Verdict, judge, judge_sound
from harness.settings import MP_TP2, Group

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = catalogue.load()
ALL, LIVE = len(FAULTS), sum(fault.live for fault in FAULTS)
FAULT = Fault(kind="states", name="zeros", broken="", case="test_x.py::test_y", cause="all (zeros|ones)")


def _case(parameters: str, cause: str | None, outcome: Outcome = "failed", function: str = "test_y") -> CaseResult:
    finding = None if cause is None else {"expected": "", "got": "3", "cause": cause, "advice": ""}
    return CaseResult(id=f"test_x.py::{function}[{parameters}]", outcome=outcome, seconds=0.0, finding=finding)


ENGINE = "harness.faults.states:zeros-mp-tp2"

# The judgement.


@pytest.mark.parametrize(
    ("cases", "outcome"),
    [
        ([], "not run"),
        ([_case("harness.faults.states:zeros_twice-mp-tp2", "all zeros")], "not run"),
        ([_case(ENGINE, "all zeros", function="test_z")], "not run"),
        ([_case(ENGINE, None, "passed")], "missed"),
        ([_case(ENGINE, None, "not-applicable")], "missed"),
        ([_case(ENGINE, "too many")], "wrong cause"),
        ([_case(ENGINE, "all zeros")], "caught"),
        ([_case(f"{ENGINE}-layer0", None, "passed"), _case(f"{ENGINE}-layer1", "all ones", "error")], "caught"),
    ],
)
def test_fault_is_caught_by_its_case_with_its_cause(cases: list[CaseResult], outcome: str) -> None:
    assert judge(FAULT, cases).outcome == outcome


@pytest.mark.parametrize(
    ("cases", "outcome"),
    [
        ([], "not reached"),
        ([_case(ENGINE, None, "passed")], "not reached"),
        ([_case(ENGINE, None, "not-applicable")], "not reached"),
        ([_case(ENGINE, "too many")], "not reached"),
        ([_case(f"{ENGINE}-layer0", None, "passed"), _case(f"{ENGINE}-layer1", "all ones")], "caught"),
    ],
)
def test_of_a_run_cut_short_only_what_was_caught_is_known(cases: list[CaseResult], outcome: str) -> None:
    verdict = judge(FAULT, cases, cut=True)
    assert (verdict.outcome, verdict.good) == (outcome, outcome == "caught")


def test_case_with_a_parameter_is_that_one_alone() -> None:
    fault = Fault(kind="states", name="zeros", broken="", case="test_x.py::test_y[layer1]", cause="zeros")
    assert judge(fault, [_case(f"{ENGINE}-layer0", "zeros")]).outcome == "not run"
    assert judge(fault, [_case(f"{ENGINE}-layer1", "zeros")]).outcome == "caught"


def test_verdict_says_what_was_said() -> None:
    assert judge(FAULT, [_case(ENGINE, "too many")]).said == "too many"


@pytest.mark.parametrize(
    ("outcomes", "outcome"),
    [
        ([], "unsound"),
        (["not-applicable"], "unsound"),
        (["passed", "not-applicable"], "sound"),
        (["passed", "failed"], "unsound"),
        (["passed", "skipped"], "unsound"),
    ],
)
def test_sound_client_passes_and_has_no_finding(outcomes: list[Outcome], outcome: str) -> None:
    group = Group(client="mine", setting=MP_TP2)
    cases = [_case(f"{group.name}-{number}", None, one) for number, one in enumerate(outcomes)]
    assert judge_sound(group, cases).outcome == outcome
    found = any(one in BROKEN for one in outcomes)
    assert judge_sound(group, cases, cut=True).outcome == ("unsound" if found else "not reached")


# The catalogue.


def test_there_are_many_and_no_two_share_a_name() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) > 80
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_has_a_client_that_takes_its_setting_and_a_case_that_exists(fault: Fault) -> None:
    client = clients.load(fault.group.client)
    spec = fault.group.setting.spec(model="", layers=(0,))
    assert client.refuses(spec) is None
    file, _, function = fault.function.partition("::")
    tree = ast.parse((TESTS.parent / "cases" / file).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    re.compile(fault.cause)


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_every_broken_client_is_in_the_catalogue(kind: str) -> None:
    module = importlib.import_module(f"harness.faults.{kind}")
    held = {name for name, value in vars(module).items() if hasattr(value, "refuses") and not isinstance(value, type)}
    assert held == {fault.client or fault.name for fault in FAULTS if fault.kind == kind}


def test_faults_of_one_client_share_an_engine_and_no_case() -> None:
    by_engine: dict[str, list[str]] = {}
    for fault in FAULTS:
        by_engine.setdefault(fault.group.name, []).append(fault.function)
    assert catalogue.only(FAULTS) == by_engine
    shared = {name: cases for name, cases in by_engine.items() if len(cases) > 1}
    assert shared, "no two faults share an engine"
    assert {name: cases for name, cases in shared.items() if len(set(cases)) < len(cases)} == {}


def test_sound_engine_runs_every_case_that_must_fail_on_a_broken_one() -> None:
    live = [fault for fault in FAULTS if fault.live]
    wanted: dict[str, set[str]] = {}
    for fault in live:
        wanted.setdefault(f"{fault.sound}-{fault.setting}", set()).add(fault.function)
    only = catalogue.only_sound(live)
    assert {name: set(cases) for name, cases in only.items()} == wanted
    assert [name for name, cases in only.items() if len(set(cases)) < len(cases)] == []


def test_case_that_ends_engines_runs_on_the_broken_one_and_on_the_sound_one() -> None:
    dealt = endings.dealt()
    for fault in FAULTS:
        case = fault.function.partition("::")[2]
        if case in dealt:
            assert endings.turn(case, fault.group) is not None, fault
            assert not fault.live or endings.turn(case, fault.unbroken) is not None, fault


# The recorded ones, all of them.


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    faults = [fault for fault in FAULTS if not fault.live]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")]))
        code, judged = running.recorded(faults, tmp_path_factory.mktemp("faults") / "evidence.json", quiet=True)
    assert code == (0 if all(verdict.good for verdict in judged) else 1)
    return judged


@pytest.mark.timeout(180)
def test_every_recorded_fault_is_caught_and_the_sound_client_is_sound(verdicts: list[Verdict]) -> None:
    assert [verdict.as_dict() for verdict in verdicts if not verdict.good] == []
    assert [verdict.outcome for verdict in verdicts].count("caught") == sum(not fault.live for fault in FAULTS)
    assert verdicts[0].outcome == "sound"


# The command.


def _stub(monkeypatch: pytest.MonkeyPatch, **outcomes: Any) -> list[tuple[str, list[str]]]:
    asked: list[tuple[str, list[str]]] = []

    def run(kind: str) -> Any:
        def recorded(faults: list[Fault], _results: Path, *, quiet: bool) -> tuple[int, list[Verdict]]:
            assert quiet in (True, False)
            asked.append((kind, [fault.name for fault in faults]))
            if outcomes[kind] is KeyboardInterrupt:
                raise KeyboardInterrupt
            said = outcomes[kind]
            verdicts = [Verdict(name=fault.name, case=fault.case, outcome=said, said="why") for fault in faults]
            return {"caught": 0, "not reached": INTERRUPTED}.get(said, 1), verdicts

        return recorded

    for kind in ("recorded", "live"):
        monkeypatch.setattr(running, kind, run(kind))
    return asked


@pytest.mark.parametrize(("recorded", "live", "code"), [("caught", "caught", 0), ("caught", "missed", 1)])
def test_exit_code_is_0_only_if_all_is_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recorded: str, live: str, code: int
) -> None:
    _stub(monkeypatch, recorded=recorded, live=live)
    assert main(["faults"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == (f"{ALL} caught" if code == 0 else f"{ALL - LIVE} caught, {LIVE} missed")
    assert ("  why" in lines[-3]) is (code == 1)


@pytest.mark.parametrize(
    ("recorded", "live", "lasts", "kinds"),
    [
        ("not reached", "caught", f"{ALL} not reached", ["recorded"]),
        (KeyboardInterrupt, "caught", f"{ALL} not reached", ["recorded"]),
        ("caught", "not reached", f"{ALL - LIVE} caught, {LIVE} not reached", ["recorded", "live"]),
        ("caught", KeyboardInterrupt, f"{ALL - LIVE} caught, {LIVE} not reached", ["recorded", "live"]),
        ("missed", KeyboardInterrupt, f"{ALL - LIVE} missed, {LIVE} not reached", ["recorded", "live"]),
    ],
)
def test_interrupt_exits_130_after_what_is_known_and_starts_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recorded: Any,
    live: Any,
    lasts: str,
    kinds: list[str],
) -> None:
    asked = _stub(monkeypatch, recorded=recorded, live=live)
    assert main(["faults"]) == 130
    assert capsys.readouterr().out.splitlines()[-1] == lasts
    assert [kind for kind, _names in asked] == kinds


@pytest.mark.parametrize("kind", ["recorded", "live"])
def test_run_that_was_cut_short_misses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    """As `conduct` ends after ^C: its code, and a record of what there was."""
    faults = [fault for fault in FAULTS if fault.live == (kind == "live") and not fault.needs][:3]
    cases = [
        CaseResult(id=f"{fault.function}[{fault.group.name}]", outcome="passed", seconds=0.0) for fault in faults[:1]
    ]
    record = Evidence(harness="0", environment={}, settings={}, started="", interrupted=True, cases=cases)
    monkeypatch.setattr(conducting, "conduct", lambda *_arguments: (INTERRUPTED, record))
    monkeypatch.setattr(identity, "environment", lambda: {"capabilities": {}})
    code, verdicts = getattr(running, kind)(faults, tmp_path / "evidence.json", quiet=True)
    assert code == INTERRUPTED
    assert {verdict.outcome for verdict in verdicts} == {"not reached"}, verdicts


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [(["--recorded"], ["recorded"]), (["--live"], ["live"]), (["-k", "residual"], ["recorded", "live"])],
)
def test_some_can_be_chosen(monkeypatch: pytest.MonkeyPatch, arguments: list[str], kinds: list[str]) -> None:
    asked = _stub(monkeypatch, recorded="caught", live="caught")
    assert main(["faults", *arguments]) == 0
    assert [kind for kind, _names in asked] == kinds


def test_word_that_no_fault_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "-k", "no_such"]) == 2
    assert "'no_such'" in capsys.readouterr().err


def test_json_is_the_verdicts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _stub(monkeypatch, recorded="missed", live="caught")
    assert main(["faults", "--json", "-k", "rows_reversed"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "good": False,
        "verdicts": [
            {"name": "rows_reversed", "case": "test_values.py::test_values", "outcome": "missed", "said": "why"}
        ],
    }


def test_recording_is_small_and_of_a_pinned_release() -> None:
    from harness.faults import recording

    assert recording.FILE.stat().st_size < 2_000_000
    assert (sources.suite() / "snapshots" / recording.read().facts["release"]).is_dir()
