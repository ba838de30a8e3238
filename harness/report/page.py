"""A report as one HTML page that needs nothing else: no script, no font, no image, no network."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from .gather import NO_CLIENT, VERDICTS, sentence
from .summary import findings
from .text import legible

if TYPE_CHECKING:
    from .gather import Cell, Row, Table
    from .steps import Step


def page(table: Table, steps: list[Step]) -> str:
    """The page. Whatever evidence says is text in it, never markup."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"sentence": sentence, "findings": findings, "reasons": _reasons, "mark": _mark}
    return templates.get_template("page.html.jinja").render(
        table=table,
        verdicts=VERDICTS,
        no_client=NO_CLIENT,
        steps=steps,
        width=sum(len(clients) for _group, clients in table.columns),
        known=sum(bool(_reasons(row, "known-fault")) for row in table.rows),
        passing=_passing,
    )


def _finalized(value: Any) -> Any:
    # What a macro made is a subclass of str, and is markup already.
    return legible(value) if type(value) is str else value


def _reasons(row: Row, outcome: str) -> list[tuple[str, int]]:
    """Why cases ended so, and how many for each reason."""
    cases = [] if row.record is None else row.record.cases
    return Counter(case.reason for case in cases if case.outcome == outcome).most_common()


def _passing(row: Row) -> tuple[int, int]:
    """Of the cells in which anything applies, how many wholly passed."""
    states = [cell.state for cell in row.cells if cell.state != "not-applicable"]
    return states.count("passed"), len(states)


def _mark(cell: Cell) -> str:
    """The number that a cell shows: of what is worst in it."""
    counts: dict[str, Any] = cell.counts
    broken = sum(counts.get(outcome, 0) for outcome in ("failed", "error", "skipped"))
    return {
        "broken": f"✗{broken}",
        "known-fault": f"◆{counts.get('known-fault', 0)}",
        "passed": str(counts.get("passed", 0)),
        "not-applicable": "-",
    }[cell.state]
