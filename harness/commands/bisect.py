"""``harness bisect``: the release that broke it."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import EnvironmentUnusableError, UsageError

from . import arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from harness.bisect import Found
    from harness.diff import Change
    from harness.releases import Build
    from harness.subjects import Subject

HELP = "find the first release on which a case, or a command of your own, fails"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--good", required=True, metavar="RELEASE", help="where it works; this is verified first")
    parser.add_argument("--bad", required=True, metavar="RELEASE", help="where it fails; this is verified second")
    parser.add_argument(
        "--find-fix", action="store_true", help="--good is newer than --bad: find the first that works again"
    )
    parser.add_argument("--case", metavar="ID", help="a case, held to what was recorded on the good release")
    parser.add_argument("--client", metavar="NAME", help="the case's client, as for `harness check`")
    parser.add_argument(
        "--snapshots-of", metavar="RELEASE", help="hold the case to another pinned release's record than --good's"
    )
    parser.add_argument("--object", metavar="NAME", help="an object of the surface, as `harness diff` names it")
    parser.add_argument(
        "--failure", metavar="REGEX", help="the command fails only if it says this; else it cannot be tested"
    )
    arguments.builds(parser)
    arguments.environment(parser)
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="a release that takes longer cannot be tested"
    )
    parser.add_argument("--no-prune", action="store_true", help="test also releases that cannot differ for the case")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has found")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="where outputs and what was found are kept; results if not given",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON; progress goes to stderr")
    parser.add_argument(
        "command_line",
        nargs="*",
        metavar="CMD",
        help="the command, after --: 0 is good, 125 cannot be tested, else bad",
    )


def run(options: argparse.Namespace) -> int:
    from harness import bisect, journal, terminal

    found_builds = _between(options)
    subject = _subject(options, found_builds[-1 if options.find_fix else 0])
    say = partial(terminal.say, as_json=options.json)
    builds, same_as = (found_builds, {}) if options.no_prune else bisect.prune(found_builds, subject)
    question = {
        **{name: getattr(options, name) for name in ("good", "bad", "find_fix", "builds", "device")},
        **subject.question(),
    }
    folder = options.results / f"bisect-{journal.key(question)}"
    with journal.alone(folder):
        if options.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        kept = journal.Journal(folder / "state.json", question)
        say(f"{len(builds)} to search, {builds[0].release} to {builds[-1].release}; outputs are in {folder}")
        for name, other in same_as.items():
            same = f"nothing that was recorded for the case differs from {other}"
            say(f"{name}: left out, {same}; --no-prune tests it too")
        if kept.seen:
            say(f"going on after an interruption, with what is known of {', '.join(kept.seen)}; --fresh forgets it")
        searching = {"find_fix": options.find_fix, "journal": kept, "folder": folder, "say": say}
        ahead = partial(_makes, options, subject)
        found, left_out = bisect.around(
            found_builds,
            same_as,
            lambda some: bisect.Bisection(some, subject, ahead=ahead, **searching).run(),
            say,
        )
        _answer(options, found, left_out)
        kept.forget()
    return 0


def _answer(options: argparse.Namespace, found: Found, left_out: Mapping[str, str]) -> None:
    from harness import bisect, diff

    if not options.json:
        print("\n".join(["", *bisect.lines(found, find_fix=options.find_fix)]), flush=True)
    changes = _changes(found.last, found.new)
    if options.json:
        told = None if changes is None else [change.as_dict() for change in changes]
        print(json.dumps({**found.as_dict(), "left_out": dict(left_out), "changes": told}, indent=1))
    elif changes is not None:
        print("\n".join(["", *diff.lines(found.last.release, found.new.release, changes)]))


def _between(options: argparse.Namespace) -> list[Build]:
    """The builds from one end to the other, oldest first."""
    from harness import builds

    offered = builds.of(options.builds, options.device)
    good, bad = (builds.named(offered, version) for version in (options.good, options.bad))
    old, new = (bad, good) if options.find_fix else (good, bad)
    if old >= new:
        order = "--bad must be older than --good" if options.find_fix else "--good must be older than --bad"
        hint = "leave out --find-fix" if options.find_fix else "--find-fix looks for the first that works again"
        raise UsageError(f"{order}: {hint}")
    return list(offered[old : new + 1])


def _subject(options: argparse.Namespace, good: Build) -> Subject:
    from harness import clients, local, releases, subjects

    given = [name for name in ("case", "object", "command_line") if getattr(options, name)]
    if len(given) != 1:
        raise UsageError("say what is to be asked: --case ID, --object NAME, or a command after --")
    if options.timeout is not None and options.timeout <= 0:
        raise UsageError("--timeout must be more than 0")
    if options.failure is not None and not options.command_line:
        raise UsageError("--failure is about what a command says: give one after --")
    if options.client is not None and not options.case:
        raise UsageError("--client is a case's: give --case ID")
    if options.object:
        return subjects.ObjectSubject(name=options.object, good=good)
    needed = clients.requirements([options.client] if options.client else [])
    requirements = (*map(local.pinned, options.requirements), *needed)
    common = {"requirements": requirements, "timeout": options.timeout}
    if options.command_line:
        return subjects.CommandSubject(command=options.command_line, failure=options.failure, **common)
    releases.find(options.snapshots_of or good.release)
    return subjects.CaseSubject(
        case=options.case,
        client=options.client,
        device=options.device,
        snapshots_of=options.snapshots_of or good.release,
        **common,
    )


def _changes(old: Build, new: Build) -> list[Change] | None:
    """What `harness diff` tells of the step; None, and the reason on stderr, where the wheels cannot be had."""
    from harness import sources, wheels

    try:
        return wheels.changes(old, new, sources.suite() / "snapshots")
    except EnvironmentUnusableError as error:
        print(f"what changed in this step is not known: {error}", file=sys.stderr)
        return None


def _makes(options: argparse.Namespace, subject: Subject, build: Build) -> list[str]:
    """The command that makes a build's environment, as the subject will ask for it."""
    from harness import sources

    return [
        *sources.python("harness", "environment", build.release),
        *("--builds", options.builds, "--device", options.device),
        *(f"--with={requirement}" for requirement in subject.requirements),
    ]
