"""``harness gate``: a command starts only on evidence that covers it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from harness.errors import GateRefusedError, UsageError
from harness.validity import MAX_AGE_DAYS

from . import arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from harness.needs import Request

HELP = "start a command only if evidence for this very environment covers what it needs"


def request_arguments(parser: argparse.ArgumentParser) -> None:
    """What the run is going to do: what is not given may be anything."""
    parser.add_argument("--client", default="executor", metavar="NAME", help="as for `harness check`; executor")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", metavar="DIR", help="the model's folder, or its name if it is in the cache")
    parser.add_argument("--layers", type=arguments.layers, default=(), metavar="IDS", help="2,30,58,60")
    parser.add_argument("--dtype", metavar="NAME", help="float32, bfloat16, ...; the model's if not given")
    parser.add_argument("--tensor-parallel-size", type=arguments.size, default=1, metavar="N")
    parser.add_argument("--pipeline-parallel-size", type=arguments.size, default=1, metavar="N")
    parser.add_argument(
        "--executor-backend",
        choices=("uni", "mp", "ray"),
        help="uni for one rank and mp for several if not given, as vLLM chooses",
    )
    parser.add_argument("--max-model-len", type=arguments.size, metavar="N")
    parser.add_argument(
        "--max-num-batched-tokens", type=arguments.size, metavar="N", help="the token budget of a forward"
    )
    parser.add_argument("--max-num-seqs", type=arguments.size, metavar="N", help="requests at a time")
    parser.add_argument("--prompts", type=arguments.size, metavar="N", help="how many there are")
    parser.add_argument("--longest-prompt", type=arguments.size, metavar="N", help="its tokens")
    parser.add_argument("--no-chunked-prefill", action="store_false", dest="chunked_prefill")
    parser.add_argument("--no-prefix-caching", action="store_false", dest="prefix_caching")
    parser.add_argument("--async-scheduling", action="store_true")
    parser.add_argument(
        "--engine-argument",
        action="append",
        default=[],
        dest="engine_arguments",
        metavar="NAME",
        help="a further engine argument of vLLM that the run gives; repeat for several",
    )


def request(options: argparse.Namespace) -> Request:
    """What these options say, less the values of engine arguments."""
    from harness.needs import Request

    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Request)}
    names = tuple(text.partition("=")[0] for text in options.engine_arguments)
    return Request(**{**given, "engine_arguments": names})


def add(parser: argparse.ArgumentParser) -> None:
    request_arguments(parser)
    arguments.evidence(parser)
    parser.add_argument(
        "--max-age", type=float, default=MAX_AGE_DAYS, metavar="DAYS", help=f"of evidence; {MAX_AGE_DAYS:g}"
    )
    parser.add_argument("--run-missing", action="store_true", help="run what is missing first, and no more")
    parser.add_argument("--json", action="store_true", help="print the decision; beside a command, on stderr")
    parser.add_argument("command_line", nargs="*", metavar="CMD", help="the command, after --; its exit code is kept")


def run(options: argparse.Namespace) -> int:
    from harness import gate, refusal

    if options.max_age <= 0:
        raise UsageError("--max-age must be more than 0 days")
    asked = request(options)
    command: list[str] = options.command_line
    decision = gate.decide(asked, places=options.evidence, max_age=options.max_age)
    if options.run_missing:
        decision = gate.closed(decision, max_age=options.max_age, quiet=_quiet(options))
    out = sys.stderr if command else sys.stdout
    again = refusal.this_command()
    if options.json:
        print(json.dumps(refusal.as_dict(decision, command, again=again), indent=1), file=out, flush=True)
    elif decision.passes:
        print(refusal.accepted(decision), file=out, flush=True)
    if not decision.passes:
        if options.json:
            return GateRefusedError.exit_code
        raise GateRefusedError(refusal.text(decision, command, again=again))
    if command:
        _start(command)
    return 0


def _quiet(options: argparse.Namespace) -> bool:
    """Whether stdout is the command's, or the JSON's."""
    return bool(options.command_line) or options.json


def _start(command: Sequence[str]) -> NoReturn:
    """Become a command: it has this process's number, environment, signals and exit code.

    Raises:
        UsageError: it cannot be started.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so.
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is the point.
    except OSError as error:
        raise UsageError(
            f"{command[0]} cannot be started: {error.strerror}. Look at the command after --."
        ) from error
