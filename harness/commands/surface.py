"""``harness surface``: what is read of a release's vLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "what clients rely on in a release, from its wheel, as JSON in the form of its snapshot"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", help="a pinned version")


def run(options: argparse.Namespace) -> int:
    from harness import releases, surface, wheels

    found = wheels.surface_of(wheels.any_build(releases.find(options.version)))
    print(json.dumps(surface.snapshot(found), indent=1, ensure_ascii=False))
    return 0
