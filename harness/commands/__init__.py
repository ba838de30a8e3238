"""The subcommands of ``harness``, a module each, in the order in which the help lists them.

A module says ``HELP``, adds its arguments to a parser in ``add``, and answers in ``run`` with the exit code. What a
command needs is imported in ``run``: asking for the help loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from . import (
    bisect,
    check,
    check_all,
    diff,
    each,
    environment,
    extract,
    faults,
    gate,
    predict,
    probe,
    releases,
    report,
    surface,
)

if TYPE_CHECKING:
    import argparse


class Command(Protocol):
    """What a module of this package offers."""

    HELP: str

    def add(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


COMMANDS: dict[str, Command] = {
    "releases": releases,
    "environment": environment,
    "probe": probe,
    "check": check,
    "check-all": check_all,
    "gate": gate,
    "faults": faults,
    "surface": surface,
    "diff": diff,
    "predict": predict,
    "bisect": bisect,
    "each": each,
    "report": report,
    "extract": extract,
}
