"""What a case that did not pass found, also where it came to no finding of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import CaptureError
from .findings import BrokenPromiseError, Finding

if TYPE_CHECKING:
    import pytest


def of_report(item: pytest.Item, error: BaseException | None, report: pytest.TestReport) -> Finding:
    """What a case broke: what it says itself, else what can be told from how it ended."""
    if isinstance(error, BrokenPromiseError):
        return error.finding
    promise = ((getattr(item, "obj", None).__doc__ or "").strip().splitlines() or [item.name])[0]
    if error is None:
        return Finding(
            expected="this case to fail: it is listed as a known upstream fault",
            got="it passed",
            cause="the fault is gone, or this build does not have it",
            advice="remove the entry from harness/known_faults.toml",
        )
    if isinstance(error, CaptureError):
        what = "the engine to open" if report.when == "setup" else promise
        return Finding(
            expected=what,
            got=f"{type(error).__name__}: {error}",
            cause="the client raised where it should not have; see the engine's logs for vLLM's own words",
            advice="read the engine's logs beside the evidence; `harness diff` shows what changed in this release",
        )
    return Finding(
        expected=promise,
        got=f"{type(error).__name__}: {error}",
        cause="the case itself failed",
        advice="run it alone: harness check -k " + item.name.partition("[")[0],
    )
