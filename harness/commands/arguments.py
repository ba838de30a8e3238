"""Arguments that several subcommands take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


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
        help="what to look at; repeat for several; results/<release>-<device> if not given",
    )
