"""``harness probe``: what the vLLM at hand can do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "capabilities and adapter of the vLLM installed here; boots nothing"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    from harness import identity

    facts = identity.environment()
    if options.json:
        print(json.dumps(facts, indent=1))
        return 0
    print(f"vLLM {facts['version']} ({facts['distribution']}), pinned as {facts['release'] or 'nothing'}")
    print(f"adapter: {facts['generation']}")
    for name, value in facts["capabilities"].items():
        print(f"  {name:<34}{'yes' if value else 'no'}")
    return 0
