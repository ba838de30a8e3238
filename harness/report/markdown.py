"""A report as Markdown: for a pull request, a step summary, or a page of the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .gather import Cell
from .summary import findings
from .text import cell, fenced

if TYPE_CHECKING:
    from harness.evidence import CaseResult

    from .gather import Row, Table
    from .steps import Step

_LEGEND = (
    "A number is of cases that passed, on all clients' engines together. **Broken**: failed, ended in an error, or "
    "were skipped. *Known*: failed as a known upstream fault says they must, which is no pass. Cases that do not "
    "apply to a client are not counted; - means that none applies, and empty that none ran."
)


def markdown(table: Table, steps: list[Step]) -> str:
    """The whole report. One line a release, one column a case group."""
    groups = [group for group, _clients in table.columns]
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in table.counts.items())
    when = f" Started {cell(table.when)}." if table.when else ""
    lines = ["# Conformance", "", f"`harness report` on {len(table.rows)} runs: {verdicts}.{when}", ""]
    lines += [f"| release | verdict | {' | '.join(map(cell, groups))} |", f"|{' --- |' * (len(groups) + 2)}"]
    for row in table.rows:
        verdict = row.verdict if row.verdict == "conforms" else f"**{row.verdict}**"
        cells = (_cell(row, group) for group in groups)
        lines.append(f"| {cell(row.name)} | {verdict} | {' | '.join(cells)} |")
    lines += ["", _LEGEND]
    if noted := [row for row in table.rows if row.note]:
        lines += ["", "## Beside the numbers", "", *(f"- {cell(row.name)}: {cell(row.note)}" for row in noted)]
    lines += _findings(table) + _known(table) + _steps(steps)
    return "\n".join(lines) + "\n"


def _cases(row: Row) -> list[CaseResult]:
    return [] if row.record is None else row.record.cases


def _cell(row: Row, group: str) -> str:
    cases = tuple(case for cell in row.cells if cell.group == group for case in cell.cases)
    merged = Cell(group=group, client="", cases=cases)
    if not cases:
        return ""
    passed = merged.counts.get("passed", 0)
    known = merged.counts.get("known-fault", 0)
    broken = len(cases) - passed - known - merged.counts.get("not-applicable", 0)
    said = [str(passed)] if passed else []
    said += [f"**{broken} broken**"] if broken else []
    said += [f"*{known} known*"] if known else []
    return ", ".join(said) or "-"


def _findings(table: Table) -> list[str]:
    lines: list[str] = []
    for row in table.rows:
        for finding, ids in findings(_cases(row)):
            more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
            lines += ["", f"### {cell(row.name)}: {cell(ids[0])}{more}", "", *fenced(finding.explain())]
    return ["", "## Findings", *lines] if lines else []


def _known(table: Table) -> list[str]:
    lines = []
    for row in table.rows:
        causes: dict[str, int] = {}
        for case in _cases(row):
            if case.outcome == "known-fault":
                causes[case.reason] = causes.get(case.reason, 0) + 1
        lines += [f"- {cell(row.name)}: {count} cases: {cell(cause)}" for cause, count in causes.items()]
    return ["", "## Known upstream faults", "", *lines] if lines else []


def _steps(steps: list[Step]) -> list[str]:
    if not steps:
        return []
    lines = ["", "## What changed between neighbours", "", "| step | results | capabilities | changes |"]
    lines.append("| --- | --- | --- | --- |")
    for step in steps:
        results = "; ".join(
            f"{result.group} ({result.client}): {result.before} -> {result.after}" for result in step.results
        )
        kinds = ", ".join(f"{count} {kind}" for kind, count in step.kinds.items())
        said = "; ".join([*([kinds] if kinds else []), *(f"not compared: {what}" for what in step.unknown)])
        name = f"{step.before} -> {step.after} {step.device}"
        lines.append(f"| {cell(name)} | {cell(results)} | {cell('; '.join(step.facts))} | {cell(said)} |")
    return lines
