"""``harness each``: a user's own command on every release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError

from . import arguments

if TYPE_CHECKING:
    import argparse

HELP = "run a command of your own in the environment of every chosen release"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--releases",
        default="",
        metavar="SPEC",
        help="a specifier ('>=0.15,<0.20') or versions ('0.15.1,0.16.0'); all with a build if not given",
    )
    arguments.environment(parser)
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="how long it may take on a release")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results") / "each",
        metavar="FOLDER",
        help="where the outputs go, a file a release; results/each if not given",
    )
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON; progress goes to stderr")
    parser.add_argument(
        "command_line", nargs="+", metavar="CMD", help="the command, after --; its exit status is the outcome"
    )


def run(options: argparse.Namespace) -> int:
    from harness import each, releases

    if options.timeout is not None and options.timeout <= 0:
        raise UsageError("--timeout must be more than 0")
    return each.each(
        releases.chosen(options.releases, options.device),
        options.command_line,
        requirements=options.requirements,
        timeout=options.timeout,
        folder=options.results,
        as_json=options.json,
    )
