"""The first build that does something else than the ones before it, and what changed in that step."""

from __future__ import annotations

import shutil
import textwrap
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import search, sources, within
from .errors import CannotTestError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .journal import Journal, Observation
    from .releases import Build
    from .search import Answer, Verdict
    from .subjects import Subject


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where a bisection ended: the change is between two builds, and those in ``untested`` could not be told.

    ``twin`` is the newest build, if any, that was left out because it cannot differ from ``old``.
    """

    old: Build
    new: Build
    before: Observation
    after: Observation
    untested: Mapping[str, str]
    tested: int
    builds: int
    twin: Build | None = None

    @property
    def last(self) -> Build:
        """The last one before the step."""
        return self.twin or self.old

    def as_dict(self) -> dict[str, Any]:
        """Plain data; ``exact`` is false where the answer is wider than one step."""
        return {
            "old": self.last.release,
            "new": self.new.release,
            "exact": not self.untested,
            "untested": dict(self.untested),
            "before": self.before.finding.as_dict() if self.before.finding else None,
            "after": self.after.finding.as_dict() if self.after.finding else None,
            "tested": self.tested,
            "builds": self.builds,
        }


def prune(builds: Sequence[Build], subject: Subject) -> tuple[list[Build], dict[str, str]]:
    """The builds worth asking, and for each left out the one before it that it cannot differ from.

    The ends stay, whatever they are.
    """
    kept = [builds[0]]
    same_as: dict[str, str] = {}
    last = subject.key(builds[0])
    for build in builds[1:-1]:
        key = subject.key(build)
        if key is not None and key == last:
            same_as[build.release] = kept[-1].release
        else:
            kept.append(build)
        last = key
    return [*kept, builds[-1]], same_as


def around(
    builds: Sequence[Build],
    same_as: Mapping[str, str],
    run: Callable[[Sequence[Build]], Found],
    say: Callable[[str], None],
) -> tuple[Found, Mapping[str, str]]:
    """Search builds but for those that cannot differ from one before them.

    Those are searched too where the one before them could not be told: they may be.

    Args:
        builds: all of them.
        same_as: as `prune` gives it.
        run: searches some of them.
        say: what a person sees while it goes on.

    Returns:
        Where the search ended, and what was left out of it.
    """
    while True:
        found = run([build for build in builds if build.release not in same_as])
        left_out = {name: other for name, other in same_as.items() if other not in found.untested}
        if left_out == same_as:
            twins = [build for build in builds if same_as.get(build.release) == found.old.release]
            return replace(found, twin=twins[-1] if twins else None), same_as
        back = sorted(same_as.keys() - left_out)
        say(f"{', '.join(back)}: not left out any more, as {', '.join(found.untested)} could not be tested")
        same_as = left_out


class Bisection:
    """One search over builds, oldest first."""

    def __init__(
        self,
        builds: Sequence[Build],
        subject: Subject,
        *,
        find_fix: bool,
        journal: Journal,
        folder: Path,
        ahead: Callable[[Build], list[str]],
        say: Callable[[str], None],
    ) -> None:
        """Prepare it.

        Args:
            builds: the good end first; with ``find_fix`` the bad end.
            subject: what is asked of each.
            find_fix: look for the first good one.
            journal: what was seen before, and where what is seen is kept.
            folder: where the outputs go, a folder a build.
            ahead: the command that makes a build's environment, as `sources.python` gives it.
            say: what a person sees while it goes on.
        """
        self._builds = builds
        self._subject = subject
        self._find_fix = find_fix
        self._journal = journal
        self._folder = folder
        self._ahead = ahead
        self._say = say
        self._preparing: dict[str, within.Running] = {}

    def run(self) -> Found:
        """Search.

        Raises:
            UsageError: an end is not what it was said to be.
            CannotTestError: an end cannot be tested.
        """
        with ExitStack() as stack:
            while isinstance(step := search.next_step(len(self._builds), self._verdicts()), search.Step):
                self._prepare(step.place, stack)
                build = self._builds[step.place]
                self._say(f"testing {build.release}; at most {step.left} to test, this one included")
                seen = self._ask(build)
                self._journal.note(build.release, seen)
                self._say(f"{build.release}: {_in_words(seen, self._differs(seen))}")
        if isinstance(step, search.WrongEnd):
            raise self._wrong_end(self._builds[step.place], step.verdict)
        return self._found(step)

    def _ask(self, build: Build) -> Observation:
        folder = self._folder / build.release
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return self._subject.ask(build, folder)

    def _verdicts(self) -> dict[int, Verdict]:
        seen = self._journal.seen
        return {
            place: self._verdict(seen[build.release])
            for place, build in enumerate(self._builds)
            if build.release in seen
        }

    def _verdict(self, seen: Observation) -> Verdict:
        if seen.outcome == "untestable" or self._differs(seen):
            return "unknown"
        return "old" if (seen.outcome == "passed") != self._find_fix else "new"

    def _differs(self, seen: Observation) -> bool:
        """Whether it fails, and not as the bad end does."""
        bad = self._journal.seen.get(self._builds[0 if self._find_fix else -1].release)
        if seen.finding is None or bad is None or bad.finding is None:
            return False
        return not self._subject.same(bad.finding, seen.finding)

    def _prepare(self, place: int, stack: ExitStack) -> None:
        """Make the environments that the step after this one may need; end the making of those it cannot."""
        if not self._subject.needs_environment:
            return
        wanted = search.ahead(len(self._builds), self._verdicts(), place)
        names = {self._builds[number].release for number in wanted}
        here = self._builds[place].release
        for name in [name for name in self._preparing if name not in {*names, here}]:
            self._preparing.pop(name).end()
        for number in wanted:
            build = self._builds[number]
            if build.release not in self._preparing:
                log = self._folder / f"{build.release}-environment.log"
                log.parent.mkdir(parents=True, exist_ok=True)
                running = within.Running(self._ahead(build), variables=sources.python_variables(), log=log)
                self._preparing[build.release] = stack.enter_context(running)

    def _wrong_end(self, build: Build, verdict: Verdict) -> UsageError | CannotTestError:
        seen = self._journal.seen[build.release]
        said = "good" if (build is self._builds[0]) != self._find_fix else "bad"
        self._journal.forget()
        text = f"{build.release} was given as --{said}, and it {_in_words(seen, differs=False)}."
        if verdict == "unknown":
            return CannotTestError(f"{text} Give a neighbour of it.")
        advice = "Give another, or --find-fix to look for the first good one." if said == "good" else "Give another."
        return UsageError(f"{text} {advice}")

    def _found(self, answer: Answer) -> Found:
        seen = self._journal.seen
        old, new = self._builds[answer.old], self._builds[answer.new]
        return Found(
            old=old,
            new=new,
            before=seen[old.release],
            after=seen[new.release],
            untested={
                build.release: seen[build.release].reason or _in_words(seen[build.release], differs=True)
                for build in (self._builds[place] for place in answer.unknown)
            },
            tested=sum(build.release in seen for build in self._builds),
            builds=len(self._builds),
        )


def _in_words(seen: Observation, differs: bool) -> str:
    if seen.outcome == "untestable":
        return f"cannot be tested: {seen.reason}"
    if seen.finding is None:
        return f"passed{_took(seen)}"
    got = textwrap.shorten(seen.finding.got, 100, placeholder="...")
    return f"{'failed, but not as the bad end does' if differs else 'failed'}{_took(seen)}: {got}"


def _took(seen: Observation) -> str:
    """Nothing where only files were read."""
    return f" in {seen.seconds:.0f} s" if seen.seconds else ""


def lines(found: Found, *, find_fix: bool) -> list[str]:
    """The answer for a terminal."""
    old, new = found.last.release, found.new.release
    first, last = ("good", "bad") if find_fix else ("bad", "good")
    if found.untested:
        out = [f"the first {first} one is after {old}, and {new} at the latest: these could not be tested"]
        out += [f"  {name}: {reason}" for name, reason in found.untested.items()]
    else:
        out = [f"{new} is the first {first} one; {old} is the last {last} one"]
    if found.twin:
        out.append(f"{old} was left out, for it cannot differ from {found.old.release}; --no-prune tests it")
    for when, seen in ((found.old.release, found.before), (new, found.after)):
        explained = seen.finding.explain() if seen.finding else f"passed{_took(seen)}"
        out += ["", f"on {when}", *(f"  {line}" for line in explained.splitlines())]
    return [*out, "", f"{found.tested} of {found.builds} tested"]
