from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import flow
import pytest
from conftest import TESTS

from harness import check, conducting, evidence, processes
from harness.errors import HarnessError, UsageError
from harness.work import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# Exit codes.

PASSING = {"test_x.py": "def test_a(engine): pass\ndef test_b(engine): pass"}


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, Any]]:
    suite = flow.write_suite(tmp_path_factory.mktemp("passing"), PASSING)
    return suite, *flow.run(suite, flow.groups("toys:SOUND"), keyword="test_a")


def test_conforming_exits_0_with_evidence_of_what_ran(passed: tuple[Path, int, dict[str, Any]]) -> None:
    _suite, code, record = passed
    assert (code, record["verdict"]) == (0, "conforms")
    assert flow.outcomes(record) == {"test_a": "passed"}
    assert record["settings"] == {
        "clients": ["toys:SOUND"],
        "device": "cpu",
        "dtype": "float32",
        "model_runner": "",
        "snapshots": "0.16.0",
        "groups": ["toys:SOUND-mp-tp2"],
        "keyword": "test_a",
        "whole": False,
        "narrowed": True,
        "only": {},
    }
    assert {name: record["environment"][name] for name in flow.FACTS} == flow.FACTS
    assert sorted(set(record["environment"]) - set(flow.FACTS)) == ["clients", "devices", "variables"]
    assert record["seconds"] > 0


def test_run_keeps_logs_and_junit_beside_the_evidence(passed: tuple[Path, int, dict[str, Any]]) -> None:
    results = passed[0] / "results"
    assert sorted(path.name for path in results.iterdir()) == ["evidence.json", "junit.xml", "logs"]
    assert sorted(path.name for path in (results / "logs").iterdir()) == [
        MARK,
        "toys:SOUND-mp-tp2.stderr.log",
        "toys:SOUND-mp-tp2.stdout.log",
    ]


@pytest.mark.usefixtures("toys")
def test_users_logs_beside_the_evidence_end_a_run_before_anything_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = flow.write_suite(tmp_path / "suite", PASSING)
    (suite / "results" / "logs").mkdir(parents=True)
    (suite / "results" / "logs" / "app.log").write_text("mine", encoding="utf-8")
    monkeypatch.setattr(conducting, "_run_cases", lambda *_arguments: pytest.fail("something ran"))
    with pytest.raises(UsageError, match="logs is there, and is of no run of the harness"):
        flow.run(suite, flow.groups("toys:SOUND"))
    assert [str(path.relative_to(suite)) for path in suite.glob("results/**/*") if path.is_file()] == [
        "results/logs/app.log"
    ]


@pytest.mark.usefixtures("toys")
def test_keyword_that_selects_nothing_exits_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.use(monkeypatch, flow.write_suite(tmp_path, PASSING), flow.groups("toys:SOUND"))
    with pytest.raises(UsageError, match="'nothing' selects no case"):
        check.check(flow.options(tmp_path / "evidence.json", keyword="nothing"))
    assert not (tmp_path / "evidence.json").exists()


@pytest.mark.usefixtures("toys")
def test_keyword_that_is_no_expression_exits_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.use(monkeypatch, flow.write_suite(tmp_path, PASSING), flow.groups("toys:SOUND"))
    with pytest.raises(UsageError, match="-k"):
        check.check(flow.options(tmp_path / "evidence.json", keyword="a and ("))


@pytest.mark.parametrize("jobs", [1, 2])
def test_case_file_that_cannot_be_imported_is_a_finding_and_no_interruption(tmp_path: Path, jobs: int) -> None:
    suite = flow.write_suite(tmp_path, {**PASSING, "test_y.py": "import no_such_module"})
    code, record = flow.run(suite, flow.groups("toys:SOUND", 2), jobs=jobs)
    assert (code, record["verdict"], record["interrupted"]) == (1, "findings", False), record
    (broken,) = [case for case in record["cases"] if case["outcome"] == "error"]
    assert broken["id"] == "test_y.py"
    assert "no_such_module" in broken["finding"]["got"], broken


@pytest.mark.parametrize(
    ("status", "outcome", "code", "interrupted"),
    [(130, "passed", 130, True), (130, "failed", 130, True), (2, "passed", 130, True), (2, "failed", 1, False)],
)
def test_interrupted_status_and_findings(
    tmp_path: Path, status: int, outcome: evidence.Outcome, code: int, interrupted: bool
) -> None:
    case = evidence.CaseResult(id="test_x.py::test_a", outcome=outcome, seconds=1.0)
    record = evidence.Evidence(harness="0", environment={}, settings={}, started="", cases=[case])
    assert conducting._exit_code(status, record, flow.options(tmp_path)) == code
    assert record.interrupted is interrupted
    assert record.verdict != "conforms"


@pytest.mark.usefixtures("toys")
def test_unwritable_evidence_exits_2_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.use(monkeypatch, tmp_path, flow.groups("toys:SOUND"))

    def prepare(*_arguments: object) -> None:
        raise AssertionError("something ran")

    monkeypatch.setattr(check, "prepare", prepare)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--evidence"):
        check.check(flow.options(tmp_path / "file" / "evidence.json"))


def test_client_that_refuses_every_setting_exits_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toys.Toy.refuses", lambda _self, _spec: "not today")
    flow.use(monkeypatch, tmp_path, flow.groups("toys:SOUND"))
    with pytest.raises(UsageError, match="no engine is left"):
        check.check(flow.options(tmp_path / "evidence.json"))


def test_only_the_settings_that_a_client_does_not_refuse_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "toys.Toy.refuses", lambda _self, spec: "takes one rank" if spec.tensor_parallel_size > 1 else None
    )
    left = check._willing(flow.groups("toys:SOUND", 4), flow.options(tmp_path / "evidence.json"))
    assert [group.setting.name for group in left] == ["mp-tp1", "uni-tp1", "core-tp1"]
    assert "toys:SOUND-mp-tp2 is left out: toys:SOUND takes one rank" in capsys.readouterr().out


@pytest.mark.usefixtures("toys")
def test_json_is_all_that_is_on_stdout(tmp_path: Path) -> None:
    suite = flow.write_suite(tmp_path, PASSING)
    command = ["check", "--json", "-n", "1", "--evidence", str(tmp_path / "evidence.json")]
    done = subprocess.run(
        [sys.executable, str(TESTS / "flow.py"), str(suite), "toys:SOUND", *command],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == evidence.read(tmp_path / "evidence.json")
    assert "1 engines: toys:SOUND-mp-tp2" in done.stderr, done.stderr


# Interrupts.


class Cases:
    """A process that is waited for: ``interrupts`` waits are interrupted."""

    def __init__(self, interrupts: int) -> None:
        self.interrupts = interrupts
        self.signals: list[int] = []
        self.killed = False
        self.timeouts: list[float | None] = []

    def wait(self, timeout: float | None = None) -> int:
        self.timeouts.append(timeout)
        if len(self.timeouts) <= self.interrupts:
            raise KeyboardInterrupt
        return 0

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.killed = True


def _wait(cases: Cases) -> int:
    return conducting._wait(cast("subprocess.Popen[bytes]", cases))


def test_status_is_pytests() -> None:
    cases = Cases(0)
    assert _wait(cases) == 0
    assert (cases.signals, cases.killed, cases.timeouts) == ([], False, [None])


@pytest.mark.parametrize("interrupts", [1, 2])
def test_interrupt_is_passed_on_once_and_the_wait_for_the_end_is_bounded(interrupts: int) -> None:
    cases = Cases(interrupts)
    assert _wait(cases) == 130
    assert cases.signals == [signal.SIGINT]
    assert cases.timeouts[1] == conducting.CLOSING_SECONDS


BLOCKING = """
    import json, os, threading
    from pathlib import Path

    def test_before(engine):
        pass

    def test_blocks(engine, run):
        facts = {**engine.call("facts"), "work": run.work}
        facts["pids"].append(os.getpid())
        notes = Path(os.environ["NOTES"])
        notes.with_suffix(".partial").write_text(json.dumps(facts))
        notes.with_suffix(".partial").rename(notes)
        threading.Event().wait()

    def test_after(engine):
        pass
"""


def _appears(path: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    deadline = time.monotonic() + 30.0
    while not path.exists():
        assert process.poll() is None, process.returncode
        assert time.monotonic() < deadline, f"no {path} in 30 s"
        time.sleep(0.02)
    facts = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(facts, dict)
    return facts


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A run that has come to a case that never ends."""
    suite = flow.write_suite(tmp_path, {"test_x.py": BLOCKING})
    command = ["check", "-n", "1", "--evidence", str(tmp_path / "results" / "evidence.json")]
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "flow.py"), str(suite), "toys:WITH_CHILD", *command],
        env={**os.environ, "PYTHONPATH": str(TESTS), "NOTES": str(tmp_path / "notes")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process, _appears(tmp_path / "notes", process)
    finally:
        process.kill()
        process.wait()


def _require_gone(facts: Mapping[str, Any]) -> None:
    processes.wait_ended(facts["pids"], 20.0)
    assert sorted(processes.ended(facts["pids"])) == sorted(facts["pids"]), facts
    assert [path for path in facts["segments"] if Path(path).exists()] == [], facts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_exits_130_keeps_its_record_and_leaves_nothing(
    tmp_path: Path, blocked: tuple[subprocess.Popen[bytes], dict[str, Any]], number: int
) -> None:
    process, facts = blocked
    process.send_signal(number)
    assert process.wait(40.0) == 130
    _require_gone(facts)
    record = evidence.read(tmp_path / "results" / "evidence.json")
    assert (record["interrupted"], record["verdict"]) == (True, "incomplete")
    assert flow.outcomes(record).get("test_before") == "passed"
    assert "test_after" not in flow.outcomes(record)
    assert not Path(facts["work"]).exists()
    assert sorted(path.name for path in (tmp_path / "results" / "logs").iterdir()) == [
        MARK,
        "toys:WITH_CHILD-mp-tp2.stderr.log",
        "toys:WITH_CHILD-mp-tp2.stdout.log",
    ]


# Before there are results: pytest's own handler is not up while a conftest is imported.
IMPORTING = """
    import json, os, signal, time
    from pathlib import Path

    notes = Path(os.environ["NOTES"])
    if os.environ["DEAF"]:
        signal.signal(signal.SIGINT, lambda *_signal: os.link(notes, notes.with_suffix(".asked")))
    notes.with_suffix(".partial").write_text(json.dumps({"pids": [os.getpid()], "segments": []}))
    notes.with_suffix(".partial").rename(notes)
    while True:
        time.sleep(0.1)
"""


@pytest.mark.parametrize("file", ["conftest.py", "test_x.py"])
@pytest.mark.parametrize("interrupts", [1, 2])
def test_interrupt_before_there_are_results_exits_130(tmp_path: Path, file: str, interrupts: int) -> None:
    suite = flow.write_suite(tmp_path, {**PASSING, file: IMPORTING})
    notes, results = tmp_path / "notes", tmp_path / "results" / "evidence.json"
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "flow.py"), str(suite), "toys:SOUND", "check", "-n", "1", "--evidence", results],
        env={
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "NOTES": str(notes),
            "DEAF": "yes" if interrupts > 1 else "",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        facts = _appears(notes, process)
        process.send_signal(signal.SIGINT)
        if interrupts > 1:
            _appears(notes.with_suffix(".asked"), process)
            process.send_signal(signal.SIGINT)
        _out, said = process.communicate(timeout=40.0)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    _require_gone(facts)
    record = evidence.read(results)
    assert (record["interrupted"], record["verdict"], record["cases"]) == (True, "incomplete", [])


@pytest.mark.parametrize("status", [0, 1, 3, -9])
def test_pytest_that_ends_by_itself_without_results_is_a_fault_of_ours(tmp_path: Path, status: int) -> None:
    record = evidence.Evidence(harness="0", environment={}, settings={}, started="")
    with pytest.raises(HarnessError, match=f"pytest ended with status {status} and kept no results"):
        conducting._read(tmp_path / "results.json", record, status)


def test_killed_run_takes_everything_down(blocked: tuple[subprocess.Popen[bytes], dict[str, Any]]) -> None:
    process, facts = blocked
    process.kill()
    process.wait()
    _require_gone(facts)
