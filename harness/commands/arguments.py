"""Arguments that several subcommands take."""

from __future__ import annotations

import argparse
from pathlib import Path


def size(text: str) -> int:
    """A number of things, 1 or more."""
    number = int(text) if text.strip().removeprefix("-").isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, and is {text}")
    return number


def layers(text: str) -> tuple[int, ...]:
    """Ids of layers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"give numbers with commas between them, as 2,30,58,60; not {text}"
        ) from error


def environment(parser: argparse.ArgumentParser) -> None:
    """For which device, and with what beside vLLM."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="requirements",
        metavar="REQUIREMENT",
        help="a further requirement, resolved together with vLLM; repeat for several",
    )


def builds(parser: argparse.ArgumentParser) -> None:
    """Where builds come from."""
    parser.add_argument(
        "--builds",
        default="releases",
        metavar="SOURCE",
        help="releases (if not given), nightly, or the address of an index page that lists wheels of vLLM",
    )


def evidence(parser: argparse._ActionsContainer) -> None:
    """Where the gate looks for evidence: a parser, or a group of its arguments."""
    parser.add_argument(
        "--evidence",
        action="append",
        type=Path,
        default=[],
        metavar="FILE|DIR",
        help="what to look at; repeat for several; results/<release>-<device> if not given, with a dtype or model "
        "runner chosen otherwise in its name",
    )
