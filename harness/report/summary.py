"""One run as people read it: a terminal summary, and a step summary for GitHub."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from harness.evidence import BROKEN
from harness.findings import Finding

from .gather import OUTCOMES, group_of, sentence
from .text import aligned, fenced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.evidence import CaseResult, Evidence


def table(cases: Iterable[CaseResult]) -> list[list[str]]:
    """A row a case file, a column an outcome that occurs; the first row is the heading."""
    counted: dict[str, dict[str, int]] = {}
    for case in cases:
        row = counted.setdefault(group_of(case.id), {})
        row[case.outcome] = row.get(case.outcome, 0) + 1
    columns = [column for column in OUTCOMES if any(column in row for row in counted.values())]
    return [
        ["cases", *columns],
        *([name, *(str(row.get(column, "")) for column in columns)] for name, row in sorted(counted.items())),
    ]


def findings(cases: Iterable[CaseResult]) -> list[tuple[Finding, list[str]]]:
    """The distinct findings, each with the cases that made it: one fault often breaks many."""
    merged: dict[Finding, list[str]] = {}
    for case in cases:
        if case.outcome in BROKEN:
            finding = (
                Finding(**case.finding)
                if case.finding
                else Finding(
                    expected="the case to run",
                    got=f"skipped: {case.reason}",
                    cause="a case may be not applicable, but not skipped",
                    advice="raise NotApplicableError with the reason, or make the case run",
                )
            )
            merged.setdefault(finding, []).append(case.id)
    return list(merged.items())


def terminal(record: Evidence, path: Path) -> None:
    """Print the summary of a run."""
    rows = table(record.cases)
    print("", *aligned(rows, right=range(1, len(rows[0]))), sep="\n")
    for number, (finding, ids) in enumerate(findings(record.cases), 1):
        print(f"\nfinding {number}: {ids[0]}" + (f" and {len(ids) - 1} more" if len(ids) > 1 else ""))
        print(textwrap.indent(finding.explain(), "  "))
    known = sorted({case.reason for case in record.cases if case.outcome == "known-fault"})
    for reason in known:
        print(f"\nknown upstream fault: {reason}")
    for repair in sorted({repair for engine in record.engines for repair in engine.repairs}):
        print(f"\nrepaired here: {repair}")
    boots = ", ".join(
        f"{engine.group} {engine.timings['boot']:.1f} s" for engine in record.engines if "boot" in engine.timings
    )
    print(f"\nengines: {boots or 'none came up'}")
    print(f"evidence: {path}")
    print(f"{record.verdict}: {sentence(record.counts())} in {record.seconds:.0f} s")


def step_summary(record: Evidence) -> None:
    """Append Markdown to ``$GITHUB_STEP_SUMMARY``, where GitHub shows it."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if target:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(markdown(record))


def markdown(record: Evidence) -> str:
    """The run as Markdown."""
    facts = record.environment
    lines = [
        f"## vLLM {facts['version']} ({facts['distribution']}, {record.settings['device']}): {record.verdict}",
        "",
        f"{sentence(record.counts())} in {record.seconds:.0f} s. Generation: {facts['generation']}.",
        "",
    ]
    heading, *rows = table(record.cases)
    lines += [f"| {' | '.join(heading)} |", f"|{' --- |' * len(heading)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    for finding, ids in findings(record.cases):
        lines += ["", f"### {ids[0]}", *([f"and {len(ids) - 1} more", ""] if len(ids) > 1 else [])]
        lines += fenced(finding.explain())
    return "\n".join(lines) + "\n"
