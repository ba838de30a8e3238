"""The ``harness`` command."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from . import __version__, tools
from .commands import COMMANDS
from .errors import INTERRUPTED, UNREAD

if TYPE_CHECKING:
    from collections.abc import Sequence


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness",
        description="Tells whether code that captures hidden states through vLLM works on the vLLM at hand.",
        epilog="exit codes: 0 conforms; 1 findings; 2 usage, also a place given that cannot be written; 3 the gate "
        "refused; 4 an environment could not be built, there is no usable vLLM, or files cannot be written; 5 "
        "internal error; 125 bisect: an end cannot be tested; 130 interrupted; 141 whoever read the output went "
        "before the result was known",
    )
    parser.add_argument("--version", action="version", version=f"harness {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    for name, command in COMMANDS.items():
        command.add(commands.add_parser(name, help=command.HELP))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(arguments)
    command = COMMANDS[options.command]
    # A background job inherits an ignored SIGINT, and SIGTERM would leave the engines to themselves.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        code = command.run(options)
        _flush()
    except KeyboardInterrupt:
        print(f"harness {options.command}: interrupted; nothing was left running", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # What it would have come to is not known: no pass.
        _give_up_stdout()
        return UNREAD
    except Exception as error:  # noqa: BLE001 - whatever it is, it has an exit code.
        said, code = tools.explained(error)
        if said == tools.FAULT:
            traceback.print_exception(error)
        print(f"harness {options.command}: {said}", file=sys.stderr)
        return code
    else:
        return code


def _flush() -> None:
    """Here, where it can be told that nobody reads on; the result is known by now."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_stdout()


def _give_up_stdout() -> None:
    """What is left in it must not be tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
