"""``harness check-all``: the suite on every pinned release."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from harness.errors import UsageError

from . import check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.options import Options

HELP = "run the suite on every pinned CPU release; what conforms already is kept"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prune",
        action="store_true",
        help="where the disk is short, remove environments of releases that are done, and what uv's cache unpacked",
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON; everything else goes to stderr")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="-- ARGUMENT",
        help="for `harness check`; nothing is kept then, as evidence is of other runs",
    )


def run(options: argparse.Namespace) -> int:
    from harness import check_all, releases

    asked = _asked(options.arguments)
    builds = [release.build("cpu") for release in releases.with_build("cpu")]
    return check_all.check_all(builds, options.arguments, asked, prune=options.prune, as_json=options.json)


def _asked(arguments: Sequence[str]) -> Options:
    """What `harness check` is going to be asked for, found out before an environment is made for it.

    Raises:
        UsageError: it would refuse them, or they name one file for the evidence of all releases.
    """
    parser = argparse.ArgumentParser(prog="harness check-all --")
    check.add(parser)
    named = parser.parse_args(arguments)
    if named.evidence is not None:
        raise UsageError(
            f"--evidence {named.evidence} would hold one release after the other: leave it out, each has a folder of "
            "its own in results"
        )
    return check.asked(named)
