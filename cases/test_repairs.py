"""Somebody else's code, failure by failure: each is met for real, then repaired, until it captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import NotApplicableError
from harness.findings import BrokenPromiseError, expect
from harness.walk import finding

if TYPE_CHECKING:
    from harness.clients.contract import Repair
    from harness.walk import Walk


def test_needs_no_repair(walked: Walk, repair: Repair) -> None:
    """The client opens and captures without this repair."""
    failure = walked.failures.get(repair.name)
    if failure is not None:
        raise BrokenPromiseError(finding(repair, failure))
    if walked.unexplained:
        raise NotApplicableError(f"it was not reached: {walked.unexplained}")


def test_captures_once_repaired(walked: Walk) -> None:
    """With the repairs that its failures asked for, the client opens and captures twice."""
    expect(
        not walked.unexplained,
        expected=f"to open and to capture twice, with {', '.join(walked.applied)} in place",
        got=walked.unexplained,
        cause="a failure that no repair of this client is for",
        advice="find out what changed (`harness diff`), and add a repair with its symptom, cause and advice",
    )
