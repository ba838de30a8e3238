"""Evidence of many runs as one table: releases x case groups x clients."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from packaging.version import InvalidVersion, Version

from harness import evidence, sources
from harness.errors import UsageError
from harness.evidence import BROKEN
from harness.options import DEFAULT_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.evidence import CaseResult, Evidence
    from harness.releases import Build

OUTCOMES = ("passed", "failed", "error", "skipped", "known-fault", "not-applicable")

# `invalid` is evidence that cannot be read or was edited; `missing` was asked for and is not there.
Verdict: TypeAlias = Literal["conforms", "findings", "incomplete", "invalid", "missing"]
VERDICTS: tuple[Verdict, ...] = ("conforms", "findings", "incomplete", "invalid", "missing")
State: TypeAlias = Literal["broken", "known-fault", "passed", "not-applicable"]

# The cases that look at vLLM itself and open no engine.
NO_CLIENT = "no engine"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The cases of one group on one client's engines."""

    group: str
    client: str
    cases: tuple[CaseResult, ...]

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter[str](case.outcome for case in self.cases)
        return {outcome: counted[outcome] for outcome in OUTCOMES if counted[outcome]}

    @property
    def state(self) -> State:
        """The worst there is; a pass only if something passed."""
        outcomes = {case.outcome for case in self.cases}
        if outcomes & set(BROKEN):
            return "broken"
        if "known-fault" in outcomes:
            return "known-fault"
        return "passed" if "passed" in outcomes else "not-applicable"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run, or one that should be there. ``note`` says what is to be known about it before its numbers.

    ``device`` has behind it the dtype, if it is not what the device gets by default, and the model runner, if one was
    chosen: such runs are compared with their like. ``comparable``: it says how all cases of its engines do on its
    release. ``all_of_it``: and nothing was left out but clients.
    """

    release: str
    device: str
    verdict: Verdict
    note: str = ""
    path: Path | None = None
    record: Evidence | None = None
    cells: tuple[Cell, ...] = ()
    comparable: bool = True
    all_of_it: bool = True

    @property
    def name(self) -> str:
        return f"{self.release} {self.device}".strip() or str(self.path)

    def cell(self, group: str, client: str) -> Cell | None:
        return next((cell for cell in self.cells if (cell.group, cell.client) == (group, client)), None)


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows, oldest release first, and the columns that occur in them."""

    rows: tuple[Row, ...]

    @property
    def columns(self) -> list[tuple[str, list[str]]]:
        """Case groups, each with its clients."""
        pairs = sorted({(cell.group, cell.client) for row in self.rows for cell in row.cells})
        return [
            (group, [client for _group, client in members])
            for group, members in itertools.groupby(pairs, key=lambda pair: pair[0])
        ]

    @property
    def counts(self) -> dict[Verdict, int]:
        counted = Counter(row.verdict for row in self.rows)
        return {verdict: counted[verdict] for verdict in VERDICTS if counted[verdict]}

    @property
    def when(self) -> str:
        """When its runs were started; empty if there are none."""
        started = sorted(row.record.started for row in self.rows if row.record)
        return " to ".join(dict.fromkeys([started[0], started[-1]])) if started else ""

    @property
    def conforms(self) -> bool:
        return all(row.verdict == "conforms" for row in self.rows)


def group_of(case_id: str) -> str:
    """``test_reply.py::test_x[executor-mp-tp2-...]`` belongs to the case file ``reply``."""
    return case_id.partition("::")[0].removeprefix("test_").removesuffix(".py")


def sentence(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if name in counts) or "no case ran"


def files(places: Sequence[Path]) -> list[Path]:
    """The evidence files that are given, or lie below given folders.

    Raises:
        UsageError: a place does not exist, or there is no evidence at all.
    """
    found: dict[Path, None] = {}
    for place in places:
        if not place.exists():
            raise UsageError(f"{place} does not exist. Give the folders that `harness check` wrote evidence to.")
        found |= dict.fromkeys(sorted(place.rglob("evidence.json")) if place.is_dir() else [place])
    if not found:
        raise UsageError(
            f"no evidence.json below {', '.join(map(str, places))}. `harness check` writes it, and so does "
            f"`nox -s conformance`."
        )
    return list(found)


def gather(paths: Iterable[Path], expected: Iterable[Build] = ()) -> Table:
    """Read evidence, and add a row for every expected build that nobody ran the whole suite on.

    The whole of it for a client that was asked for is enough: it is somebody's own.
    """
    rows = [_row(path) for path in paths]
    there = {(row.release, row.device) for row in rows if row.all_of_it}
    in_part = {(row.release, row.device) for row in rows} - there
    missing = [build for build in expected if (build.release, build.device) not in there]
    rows += [_missing(build, in_part=(build.release, build.device) in in_part) for build in missing]
    return Table(rows=tuple(sorted(rows, key=_order)))


def _order(row: Row) -> tuple[Version, str, str]:
    try:
        version = Version(row.release)
    except InvalidVersion:
        version = Version("0")
    return version, row.device, str(row.path)


def _missing(build: Build, *, in_part: bool) -> Row:
    what = "there is evidence of a part of the suite only" if in_part else "there is no evidence of it"
    why = f"; its build needs glibc {build.glibc} or newer" if build.glibc else ""
    return Row(release=build.release, device=build.device, verdict="missing", note=f"{what}{why}", all_of_it=False)


def _row(path: Path) -> Row:
    try:
        record = evidence.load(path)
        facts, settings = record.environment, record.settings
        release, device = str(facts["release"] or facts["version"]), str(settings["device"])
        cells = _cells(record)
        whole, keyword, held_to = settings["whole"], settings["keyword"], settings["snapshots"]
        borrowed = "" if settings.get("snapshots_of", release) == release else settings["snapshots_of"]
        limited = bool(keyword or borrowed or settings.get("only"))
        dtype = "" if settings["dtype"] == DEFAULT_DTYPES.get(settings["device"]) else settings["dtype"]
        device = " ".join(filter(None, [device, dtype, settings["model_runner"]]))
    except UsageError as error:
        return Row(release="", device="", verdict="invalid", note=str(error), path=path)
    except (KeyError, TypeError) as error:
        note = f"{path} lacks {error}: another version of the harness wrote it. Run `harness check` again."
        return Row(release="", device="", verdict="invalid", note=note, path=path)
    verdict: Verdict = record.verdict
    notes = [] if whole else [f"limited to the engines {', '.join(settings['groups'])}"]
    if verdict == "incomplete":
        notes.append("the run was cut short" if record.interrupted else "no case passed")
    if record.suite != sources.digest(sources.suite(), held_to):
        notes.append("of another state of the suite than this one")
    if borrowed:
        notes.append(f"held to the snapshots of {borrowed}, not of this release")
    if keyword:
        notes.append(f"limited to the cases that match {keyword!r}")
        # Whatever passed, the suite did not.
        verdict = "incomplete" if verdict == "conforms" else verdict
    return Row(
        release=release,
        device=device,
        verdict=verdict,
        note="; ".join(notes),
        path=path,
        record=record,
        cells=cells,
        comparable=not limited,
        all_of_it=settings["whole"] or not settings["narrowed"],
    )


def _cells(record: Evidence) -> tuple[Cell, ...]:
    sorted_out: dict[tuple[str, str], list[CaseResult]] = {}
    for case in record.cases:
        sorted_out.setdefault((group_of(case.id), _client(case.id, record)), []).append(case)
    return tuple(
        Cell(group=group, client=client, cases=tuple(cases)) for (group, client), cases in sorted(sorted_out.items())
    )


def _client(case_id: str, record: Evidence) -> str:
    """The client on whose engine a case ran: its parameters begin with the name of the engine."""
    engines = [name for name in record.settings["groups"] if f"[{name}]" in case_id or f"[{name}-" in case_id]
    engine = max(engines, key=len, default="")
    clients = [name for name in record.settings["clients"] if engine.startswith(f"{name}-")]
    return max(clients, key=len, default=NO_CLIENT)
