"""The workflow of this project and the one to copy, as far as zizmor does not look: they call what is there."""

from __future__ import annotations

import re

import pytest
from conftest import TESTS

from harness.commands import COMMANDS

WORKFLOWS = [
    TESTS.parent / ".github" / "workflows" / "conformance.yml",
    TESTS.parent / "docs" / "how-to" / "run-in-ci.yml",
]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in WORKFLOWS}


@pytest.mark.parametrize("name", TEXTS)
def test_commands_and_their_options_exist(name: str) -> None:
    called = re.findall(r"-{1,2}[\w-]+ \S+ harness ([a-z-]+)", TEXTS[name])
    assert {"releases", "report"} <= set(called) <= set(COMMANDS), called


def test_an_action_has_one_commit_in_both() -> None:
    pins = {pin for text in TEXTS.values() for pin in re.findall(r"uses: (\S+)@([0-9a-f]{40}) # (v\S+)", text)}
    assert len(pins) == len({action for action, _commit, _version in pins}), pins
    assert sum(text.count("uses: ") for text in TEXTS.values()) == sum(
        len(re.findall(r"uses: \S+@[0-9a-f]{40} # v", text)) for text in TEXTS.values()
    )


@pytest.mark.parametrize("name", TEXTS)
def test_the_gate_runs_always_and_needs_every_other_job(name: str) -> None:
    jobs = re.findall(r"^  (\w+):$", TEXTS[name].partition("\njobs:\n")[2], re.MULTILINE)
    gate = TEXTS[name].partition("\n  gate:\n")[2]
    needs = re.search(r"needs: \[(.*)\]", gate)
    assert needs is not None
    assert [*needs[1].split(", "), "gate"] == jobs
    assert "\n    if: always()\n" in gate
    for result in ("failure", "cancelled", "skipped"):
        assert f"contains(needs.*.result, '{result}')" in gate, result
