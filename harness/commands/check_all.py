"""``harness check-all``: the suite on every pinned release."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

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

    builds = [release.build("cpu") for release in releases.with_build("cpu")]
    return check_all.check_all(builds, options.arguments, prune=options.prune, as_json=options.json)
