"""``harness faults``: breaks sound clients in every known way, and checks that the right case fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import FINDINGS, OK, UsageError

if TYPE_CHECKING:
    import argparse

HELP = "break a sound client in every known way, and check that the right case says so"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recorded", action="store_true", help="only those that need no vLLM: a recording is broken")
    parser.add_argument("--live", action="store_true", help="only those that need the vLLM installed here")
    parser.add_argument("-k", default="", dest="word", metavar="WORD", help="only faults whose name holds a word")
    parser.add_argument(
        "--results", type=Path, default=Path("results/faults"), metavar="FOLDER", help="where logs and JUnit XML go"
    )
    parser.add_argument("--json", action="store_true", help="print JSON; progress goes to stderr")


def run(options: argparse.Namespace) -> int:
    from harness.faults import catalogue, running

    chosen = [fault for fault in catalogue.load() if options.word in fault.name]
    recorded = [fault for fault in chosen if not fault.live and (options.recorded or not options.live)]
    live = [fault for fault in chosen if fault.live and (options.live or not options.recorded)]
    if not recorded and not live:
        raise UsageError(f"no fault has {options.word!r} in its name: `harness faults` without -k shows all")
    verdicts = []
    if recorded:
        verdicts += running.recorded(recorded, options.results / "recorded" / "evidence.json", quiet=options.json)
    if live:
        verdicts += running.live(live, options.results / "live" / "evidence.json", quiet=options.json)
    if options.json:
        print(json.dumps(running.as_json(verdicts), indent=1))
    else:
        print("\n".join(["", *running.table(verdicts)]))
    return OK if all(verdict.good for verdict in verdicts) else FINDINGS
