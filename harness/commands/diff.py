"""``harness diff``: what changed between two releases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "what changed between two releases, from their wheels and snapshots"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", help="a pinned version")
    parser.add_argument("after", help="a pinned version")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")


def run(options: argparse.Namespace) -> int:
    from harness import diff, releases, sources, wheels

    before, after = (wheels.any_build(releases.find(version)) for version in (options.before, options.after))
    folder = sources.suite() / "snapshots"
    changes = wheels.changes(before, after, folder)
    unrecorded = [version for version in (options.before, options.after) if not diff.snapshots(folder / version)]
    if options.json:
        rows = [change.as_dict() for change in changes]
        named = {"before": options.before, "after": options.after}
        print(json.dumps({**named, "unrecorded": unrecorded, "changes": rows}, indent=1))
        return 0
    if options.markdown:
        print(diff.markdown(options.before, options.after, changes), end="")
    else:
        print("\n".join(diff.lines(options.before, options.after, changes)))
    if unrecorded:
        print(f"\nNothing was recorded live on {' and '.join(unrecorded)}: what no signature shows is not here.")
    return 0
