"""``harness report``: evidence of many runs as one table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import FINDINGS, OK, UsageError

if TYPE_CHECKING:
    import argparse

    from harness.releases import Build, Release
    from harness.report.gather import Row, Table
    from harness.report.steps import Step

HELP = "evidence of many runs as a page, Markdown or JUnit XML"
ALL = "all"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places", nargs="+", type=Path, metavar="DIR", help="folders with evidence.json files below, or such files"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page that needs nothing else")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write Markdown")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML (xunit2)")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="RELEASE",
        help="a release whose evidence must be there; repeat for several; `all` for every pinned one",
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="what --expect means; cpu if not given"
    )


def run(options: argparse.Namespace) -> int:
    from harness import sources
    from harness.report import gather, steps

    paths = gather.files(options.places)
    table = gather.gather(paths, _expected(options))
    changed = steps.steps(table, sources.suite() / "snapshots")
    _write(options, table, changed)
    if options.json:
        print(json.dumps(_as_dict(table, changed), indent=1))
    else:
        print("\n".join(_lines(table)))
    return OK if table.conforms else FINDINGS


def _expected(options: argparse.Namespace) -> list[Build]:
    from harness import releases

    rows: list[Release] = []
    for name in options.expect:
        rows += releases.with_build(options.device) if name == ALL else [releases.find(name)]
    return list({row.version: row.build(options.device) for row in rows}.values())


def _write(options: argparse.Namespace, table: Table, changed: list[Step]) -> None:
    """Write what is asked for.

    Raises:
        UsageError: a file cannot be written.
    """
    from harness.report.junit import junit
    from harness.report.markdown import markdown

    texts: dict[Path, str] = {}
    if options.html:
        from harness.report.page import page

        texts[options.html] = page(table, changed)
    if options.markdown:
        texts[options.markdown] = markdown(table, changed)
    if options.junit:
        texts[options.junit] = junit(table)
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}. Give another place.") from error


def _lines(table: Table) -> list[str]:
    from harness.report.text import aligned, legible

    lines = aligned(
        [("run", "verdict", "cases"), *((legible(row.name), row.verdict, legible(_said(row))) for row in table.rows)]
    )
    return [*lines, "", ", ".join(f"{count} {verdict}" for verdict, count in table.counts.items())]


def _said(row: Row) -> str:
    from harness.report.gather import sentence

    counts = [sentence(row.record.counts())] if row.record else []
    return "; ".join([*counts, *([row.note] if row.note else [])])


def _as_dict(table: Table, changed: list[Step]) -> dict[str, Any]:
    from harness.report.summary import findings

    rows = [
        {
            "release": row.release,
            "device": row.device,
            "verdict": row.verdict,
            "note": row.note,
            "evidence": str(row.path) if row.path else None,
            "cells": [{"group": cell.group, "client": cell.client, **cell.counts} for cell in row.cells],
            "findings": [
                {**finding.as_dict(), "cases": ids}
                for finding, ids in findings(row.record.cases if row.record else [])
            ],
        }
        for row in table.rows
    ]
    return {"conforms": table.conforms, "runs": rows, "steps": [asdict(step) for step in changed]}
