"""What evidence covers of what a run needs, case by case, over all files that count: a pure function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from . import known_faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .evidence import CaseResult, EngineResult, Evidence
    from .needs import Need, Needs

Why: TypeAlias = Literal["not run", "did not pass", "known fault"]


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A case that a run needs and that no evidence covers."""

    case: str
    need: Need
    why: Why
    said: str


def covered(needs: Needs, records: Sequence[Evidence], release: str, device: str) -> tuple[list[str], list[Gap]]:
    """What is covered, and what is not.

    Args:
        needs: of the run.
        records: the evidence that counts here. Of a case that ran several times, the last run says how it is, if its
            engine was of the setting: also where that crashed, or left processes behind.
        release: the vLLM at hand, for the faults that are known of it.
        device: what it runs on.

    Returns:
        The ids of the cases that are covered, and the gaps, in the order of the needs.
    """
    newest = sorted(records, key=lambda record: record.started, reverse=True)
    passed: list[str] = []
    gaps: list[Gap] = []
    for need in needs.needs:
        for case in need.ids:
            gap = _gap(case, need, newest, release, device)
            if gap is None:
                passed.append(case)
            else:
                gaps.append(gap)
    return passed, gaps


def _gap(case: str, need: Need, newest: Sequence[Evidence], release: str, device: str) -> Gap | None:
    fault = known_faults.of_case(release, device, case)
    if fault is not None:
        return Gap(case=case, need=need, why="known fault", said=f"a known fault of vLLM {release}: {fault.cause}")
    for record in newest:
        results = [result for result in record.cases if result.id == case]
        if not results or _of_another_setting(record, need, device):
            continue
        bad = next((result for result in results if result.outcome != "passed"), None)
        if bad is not None:
            return _of_result(case, need, bad)
        if _left_behind(record, need):
            said = f"engine {need.engine} left processes behind: what it gave is not counted"
            return Gap(case=case, need=need, why="did not pass", said=said)
        if need.group is None or _opened(record, need):
            return None
    return Gap(case=case, need=need, why="not run", said=_not_run(need, newest, device))


def _of_result(case: str, need: Need, result: CaseResult) -> Gap:
    if result.outcome == "known-fault":
        return Gap(case=case, need=need, why="known fault", said=f"a known fault: {result.reason}")
    found = result.finding["cause"] if result.finding is not None else result.reason
    said = f"it is {result.outcome}" if result.outcome == "not-applicable" else f"it {_PAST[result.outcome]}"
    return Gap(case=case, need=need, why="did not pass", said=f"{said}: {found}" if found else said)


_PAST = {"failed": "failed", "error": "came to an error", "skipped": "was skipped", "passed": "passed"}


def _opened(record: Evidence, need: Need) -> list[EngineResult]:
    """The engine of a need, as it is in a record; not if the process that had it crashed."""
    return [engine for engine in record.engines if engine.group == need.engine]


def _of_another_setting(record: Evidence, need: Need, device: str) -> bool:
    """Whether what was opened under the engine's name is not what the run needs."""
    if need.group is None:
        return False
    setting = need.group.setting
    wanted = {
        "executor_backend": setting.executor_backend,
        "tensor_parallel_size": setting.tensor_parallel_size,
        "pipeline_parallel_size": setting.pipeline_parallel_size,
        "async_scheduling": setting.async_scheduling,
        "device": device,
    }
    specs = [engine.spec for engine in _opened(record, need)]
    return any(spec.get(name) != value for spec in specs for name, value in wanted.items())


def _left_behind(record: Evidence, need: Need) -> bool:
    return any(engine.left_behind for engine in _opened(record, need))


def _not_run(need: Need, records: Sequence[Evidence], device: str) -> str:
    """Why no evidence has a case, as far as it can be told from what there is."""
    if not records:
        return "there is no evidence that counts"
    if need.group is not None:
        ran = [record for record in records if _opened(record, need)]
        if not ran:
            engines = sorted({engine.group for record in records for engine in record.engines})
            return f"engine {need.engine} was not run; {', '.join(engines) or 'none'} was"
        if all(_of_another_setting(record, need, device) for record in ran):
            return f"what was opened as engine {need.engine} is not one of that setting"
    return _cut_short(records)


def _cut_short(records: Sequence[Evidence]) -> str:
    if any(record.interrupted for record in records):
        return "the run was interrupted before it"
    keywords = sorted({record.settings["keyword"] for record in records if record.settings.get("keyword")})
    if keywords:
        return f"the run was narrowed by -k {' and '.join(map(repr, keywords))}"
    return "it is not in the evidence"
