"""The search of `harness bisect` for the first release that differs, where every answer is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import bisecting
import fake_check
import made
import pytest
from bisecting import BROKEN, PASSED, SOUGHT

from harness import bisect, releases, subjects, wheels
from harness.errors import CannotTestError, EnvironmentUnusableError, UsageError
from harness.journal import Journal, Observation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.releases import Build


@dataclass(frozen=True, kw_only=True)
class Told(subjects.CaseSubject):
    """A case whose answers are known; as everywhere, a failure is the same whatever its numbers."""

    needs_environment: ClassVar[bool] = False

    case: str = "test_x.py::test_x"
    client: str | None = None
    device: releases.Device = "cpu"
    snapshots_of: str = "0.20.2"
    answers: Mapping[str, Observation]
    tested: list[str] = field(default_factory=list)

    def ask(self, build: Build, folder: Path) -> Observation:
        assert list(folder.iterdir()) == []
        self.tested.append(build.release)
        return self.answers[build.release]


@dataclass(frozen=True, kw_only=True)
class Installed(Told):
    """The same, in an environment."""

    needs_environment: ClassVar[bool] = True


def _search(
    folder: Path, answers: Mapping[str, Observation], *, find_fix: bool = False, ahead: list[str] | None = None
) -> tuple[bisect.Found, list[str], list[str]]:
    """What was found, what was tested in order, and what a person saw."""
    subject = Told(answers=answers) if ahead is None else Installed(answers=answers)
    said: list[str] = []

    def prepare(build: Build) -> list[str]:
        assert ahead is not None, f"made an environment of {build.release}"
        ahead.append(f"{build.release} before {len(subject.tested)}")
        return ["true"]

    found = bisect.Bisection(
        bisecting.builds(),
        subject,
        find_fix=find_fix,
        journal=Journal(folder / "state.json", {}),
        folder=folder,
        ahead=prepare,
        say=said.append,
    ).run()
    return found, subject.tested, said


def _row(first: str, before: Observation = PASSED, after: Observation = SOUGHT, **others: Observation) -> Any:
    place = made.ROW.index(first)
    row = {version: before if number < place else after for number, version in enumerate(made.ROW)}
    return row | {name.removeprefix("v").replace("_", "."): seen for name, seen in others.items()}


@pytest.mark.parametrize("first", made.ROW[1:])
def test_it_names_the_first_bad_release_in_few_environments(tmp_path: Path, first: str) -> None:
    found, tested, _said = _search(tmp_path, _row(first))
    assert (found.new.release, found.old.release) == (first, made.ROW[made.ROW.index(first) - 1])
    assert found.as_dict()["exact"] is True
    assert tested[:2] == [made.ROW[0], made.ROW[-1]], tested
    assert len(tested) <= 3 + 2, tested


def test_find_fix_names_the_first_good_one(tmp_path: Path) -> None:
    found, _tested, _said = _search(tmp_path, _row("0.23.0", before=SOUGHT, after=PASSED), find_fix=True)
    assert (found.old.release, found.new.release) == ("0.22.1", "0.23.0")
    lines = bisect.lines(found, find_fix=True)
    assert lines[0] == "0.23.0 is the first good one; 0.22.1 is the last bad one"


def test_the_same_failure_with_other_numbers_and_folders_is_the_one_sought(tmp_path: Path) -> None:
    elsewhere = bisecting.failed("one list less: [17, 64] in /b/0.23.0/lib/x.py")
    found, _tested, _said = _search(tmp_path, _row("0.22.1", v0_22_1=elsewhere, v0_23_0=elsewhere))
    assert found.new.release == "0.22.1"


@pytest.mark.parametrize(
    "other", [BROKEN, bisecting.failed("ImportError: libsomething.so.1")], ids=["untestable", "different"]
)
def test_what_cannot_be_told_widens_the_answer_and_is_named(tmp_path: Path, other: Observation) -> None:
    found, _tested, _said = _search(tmp_path, _row("0.24.0", v0_23_0=other, v0_22_1=other))
    assert (found.old.release, found.new.release) == ("0.21.0", "0.24.0")
    assert found.as_dict()["exact"] is False
    lines = bisect.lines(found, find_fix=False)
    assert lines[0] == "the first bad one is after 0.21.0, and 0.24.0 at the latest: these could not be tested"
    reason = "the disk is full" if other is BROKEN else "failed, but not as the bad end does: Import"
    assert lines[1].startswith(f"  0.22.1: {reason}"), lines
    assert lines[2].startswith(f"  0.23.0: {reason}"), lines


def test_what_cannot_be_told_elsewhere_does_not(tmp_path: Path) -> None:
    found, _tested, _said = _search(tmp_path, _row("0.26.0", v0_23_0=BROKEN))
    assert (found.old.release, found.new.release, found.untested) == ("0.25.1", "0.26.0", {})


@pytest.mark.parametrize(
    ("row", "find_fix", "error", "said"),
    [
        (
            _row("0.21.0", v0_20_2=SOUGHT),
            False,
            UsageError,
            "0.20.2 was given as --good, and it failed: one list less",
        ),
        (_row("0.21.0", v0_27_1=PASSED), False, UsageError, "0.27.1 was given as --bad, and it passed in 2 s"),
        (
            _row("0.21.0", v0_20_2=BROKEN),
            False,
            CannotTestError,
            "0.20.2 was given as --good, and it cannot be tested",
        ),
        (
            _row("0.21.0", v0_27_1=BROKEN),
            False,
            CannotTestError,
            "0.27.1 was given as --bad, and it cannot be tested",
        ),
        (_row("0.21.0"), True, UsageError, "0.20.2 was given as --bad, and it passed"),
        (_row("0.21.0", before=SOUGHT), True, UsageError, "0.27.1 was given as --good, and it failed"),
    ],
)
def test_wrong_ends_are_found_first(
    tmp_path: Path, row: Mapping[str, Observation], find_fix: bool, error: type[UsageError], said: str
) -> None:
    with pytest.raises(error, match=said):
        _search(tmp_path, row, find_fix=find_fix)
    assert not (tmp_path / "state.json").exists()


def test_it_says_how_many_are_left(tmp_path: Path) -> None:
    _found, _tested, said = _search(tmp_path, _row("0.23.0"))
    left = [int(line.split("at most ")[1].split()[0]) for line in said if line.startswith("testing")]
    assert left == [5, 4, 3, 2, 1], said


def test_the_environments_of_the_next_step_are_made_while_one_is_tested(tmp_path: Path) -> None:
    """Both that it may need: while 0.23.0 is tested, those in the middle of either half."""
    ahead: list[str] = []
    _found, tested, _said = _search(tmp_path, _row("0.21.0"), ahead=ahead)
    assert tested == ["0.20.2", "0.27.1", "0.23.0", "0.21.0"]
    assert ahead == ["0.27.1 before 0", "0.23.0 before 1", "0.25.1 before 2", "0.21.0 before 2", "0.22.1 before 3"]


def test_the_state_is_whole_after_every_step_and_is_taken_up(tmp_path: Path) -> None:
    """Killed after any step: what was tested then is not tested again, and the answer is the same."""
    row = _row("0.25.1", v0_23_0=BROKEN)
    _found, whole, _said = _search(tmp_path / "whole", row)
    for steps in range(len(whole)):
        journal = Journal(tmp_path / str(steps) / "state.json", {})
        for version in whole[:steps]:
            journal.note(version, row[version])
        found, tested, _said = _search(tmp_path / str(steps), row)
        assert found.new.release == "0.25.1"
        assert tested == whole[steps:]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"seen": {"0.21.0": {}}, "question": {}}', '{"seen": {}, "question": 1}']
)
def test_a_state_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="--fresh"):
        Journal(tmp_path / "state.json", {})


# What is left out.


@dataclass(frozen=True, kw_only=True)
class Keyed(Told):
    answers: Mapping[str, Observation] = field(default_factory=dict)
    keys: Mapping[str, str | None]

    def key(self, build: Build) -> str | None:
        return self.keys[build.release]


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ("abbcd", ["0.20.2", "0.21.0", "0.23.0", "0.24.0"]),
        ("aaaab", ["0.20.2", "0.24.0"]),
        ("abbbb", ["0.20.2", "0.21.0", "0.24.0"]),
        ("a--b-", list(made.ROW[:5])),
        ("ababa", list(made.ROW[:5])),
    ],
)
def test_a_release_that_cannot_differ_from_the_one_before_is_left_out(keys: str, kept: list[str]) -> None:
    row = made.ROW[: len(keys)]
    of = {version: None if key == "-" else key for version, key in zip(row, keys, strict=True)}
    left, same_as = bisect.prune(bisecting.builds(*row), Keyed(keys=of))
    assert [build.release for build in left] == kept
    assert set(same_as) == set(row) - set(kept)
    assert all(of[name] == of[other] for name, other in same_as.items()), same_as


def test_what_was_recorded_and_what_the_client_relies_on_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.11.0 replied with a list of one; 0.11.1 and 0.11.2 with the bare value, through the same signatures."""
    surfaces: dict[str, Any] = {"0.11.2": {}, "0.11.1": {}, "0.11.0": {}}
    monkeypatch.setattr(wheels, "surface_of", lambda build: surfaces[build.release])
    case = subjects.CaseSubject(case=fake_check.CASE, client=None, device="cpu", snapshots_of="0.11.0")
    old, first, second = (case.key(build) for build in bisecting.builds("0.11.0", "0.11.1", "0.11.2"))
    assert old != first == second
    assert first is not None


@pytest.mark.parametrize(
    ("case", "client"),
    [
        ("test_values.py::test_values[executor-mp-tp2-prompt0-layer0]", None),
        ("test_reply.py::test_first_rank[mine:CLIENT-mp-tp2]", "mine:CLIENT"),
    ],
    ids=["values", "a client of the user's"],
)
def test_a_case_that_looks_at_more_than_structure_is_never_left_out(case: str, client: str | None) -> None:
    subject = subjects.CaseSubject(case=case, client=client, device="cpu", snapshots_of="0.11.0")
    assert subject.key(bisecting.builds("0.16.0")[0]) is None


def test_a_surface_that_cannot_be_had_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_build: Build) -> None:
        raise EnvironmentUnusableError("no network")

    monkeypatch.setattr(wheels, "surface_of", fail)
    case = subjects.CaseSubject(case=fake_check.CASE, client=None, device="cpu", snapshots_of="0.11.0")
    assert case.key(bisecting.builds("0.16.0")[0]) is None
