"""``harness predict``: what of a client breaks on which release."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "what of a client breaks on which release, from wheels and snapshots; boots nothing"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", help="a client of uses.toml, or a TOML file that declares some")
    parser.add_argument(
        "--releases",
        default="",
        metavar="SPEC",
        help="only these, as pip writes them: '>=0.16,<0.30', '==0.16.0'; all pinned ones if not given",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    from harness import diff, predict, releases, sources, uses, wheels

    clients = uses.find(options.client)
    chosen = releases.matching(options.releases)
    folder = sources.suite() / "snapshots"
    found = {
        client.name: {
            release.version: predict.breaks(
                client,
                wheels.surface_of(wheels.any_build(release)),
                recorded=diff.snapshots(folder / release.version),
                expected=diff.snapshots(folder / client.written_for),
            )
            for release in chosen
        }
        for client in clients
    }
    if options.json:
        rows = [
            {"client": name, "release": version, "breaks": [each.as_dict() for each in broken]}
            for name, by_release in found.items()
            for version, broken in by_release.items()
        ]
        print(json.dumps(rows, indent=1))
    else:
        print("\n\n".join("\n".join(predict.lines(client, found[client.name])) for client in clients))
    known = (each for by_release in found.values() for broken in by_release.values() for each in broken)
    return 1 if any(each.kind != "not recorded" for each in known) else 0
