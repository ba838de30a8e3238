"""``harness faults``: breaks sound clients in every known way, and checks that the right case fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import INTERRUPTED, OK, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from harness.faults.catalogue import Fault, Verdict

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
    code = OK
    verdicts: list[Verdict] = []
    for kind, faults, judged in (("recorded", recorded, running.recorded), ("live", live, running.live)):
        if code == INTERRUPTED:
            verdicts += map(catalogue.not_reached, faults)
        elif faults:
            results = options.results / kind / "evidence.json"
            of_kind, said = _unless_interrupted(judged, faults, results, quiet=options.json)
            code, verdicts = max(code, of_kind), [*verdicts, *said]
    if options.json:
        print(json.dumps(running.as_json(verdicts), indent=1))
    else:
        print("\n".join(["", *running.table(verdicts)]))
    return code


def _unless_interrupted(
    judged: Callable[..., tuple[int, list[Verdict]]], faults: Sequence[Fault], results: Path, *, quiet: bool
) -> tuple[int, list[Verdict]]:
    """What became of faults; after ^C before the first case, that they were not reached."""
    from harness.faults import catalogue

    try:
        return judged(faults, results, quiet=quiet)
    except KeyboardInterrupt:
        return INTERRUPTED, [catalogue.not_reached(fault) for fault in faults]
