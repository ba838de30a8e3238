"""A user's own command in the environment of every chosen release."""

from __future__ import annotations

import json
import textwrap
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from . import environments, terminal, within
from .errors import FINDINGS, OK, EnvironmentUnusableError, NoCommandError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .releases import Build

Name: TypeAlias = Literal["passed", "failed", "timed out", "no command", "no environment"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the command did on one release; ``status`` is None where it was not started."""

    release: str
    outcome: Name
    status: int | None
    seconds: float
    output: str


def each(
    builds: Sequence[Build],
    command: Sequence[str],
    *,
    requirements: Sequence[str],
    timeout: float | None,
    folder: Path,
    as_json: bool,
) -> int:
    """Run the command on one release after the other, whatever it does on the ones before.

    Args:
        builds: the releases, as they are installed.
        command: what to run.
        requirements: what to resolve together with vLLM.
        timeout: seconds a release; None for as long as it takes.
        folder: where the outputs go, ``<release>.log`` each.
        as_json: print the outcomes as JSON; progress goes to stderr.

    Returns:
        0 if it passed everywhere, 1 if it failed on a release, 4 if all that is wrong is that an environment could
        not be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for number, build in enumerate(builds, 1):
        outcome = _on(build, command, requirements, timeout, folder / f"{build.release}.log")
        outcomes.append(outcome)
        terminal.say(f"[{number}/{len(builds)}] {_line(outcome)}", as_json=as_json)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        _summary(outcomes, folder)
    seen = {outcome.outcome for outcome in outcomes}
    if "no command" in seen and not seen & {"passed", "failed", "timed out"}:
        raise UsageError(f"{command[0]!r} is no command: no release's environment has it, and it is not on the PATH")
    if seen & {"failed", "timed out", "no command"}:
        return FINDINGS
    return EnvironmentUnusableError.exit_code if "no environment" in seen else OK


def _on(
    build: Build, command: Sequence[str], requirements: Sequence[str], timeout: float | None, log: Path
) -> Outcome:
    start = time.monotonic()
    try:
        environment = environments.ensure(build, requirements=requirements)
        ended = within.run(environment, command, log=log, timeout=timeout)
    except (EnvironmentUnusableError, NoCommandError) as error:
        log.write_text(f"{error}\n", encoding="utf-8")
        name: Name = "no command" if isinstance(error, NoCommandError) else "no environment"
        seconds = round(time.monotonic() - start, 1)
        return Outcome(release=build.release, outcome=name, status=None, seconds=seconds, output=str(log))
    return Outcome(
        release=build.release,
        outcome="timed out" if ended.timed_out else "failed" if ended.status else "passed",
        status=ended.status,
        seconds=ended.seconds,
        output=str(log),
    )


def _line(outcome: Outcome) -> str:
    status = f"exit {outcome.status}" if outcome.status else ""
    return f"{outcome.release:<9} {outcome.outcome:<15}{status:<9}{outcome.seconds:7.1f} s"


def _summary(outcomes: Sequence[Outcome], folder: Path) -> None:
    """What is to be read: the end of what was said wherever it did not pass."""
    for outcome in outcomes:
        if outcome.outcome != "passed":
            print(f"\n{outcome.release}: {outcome.outcome}; the end of {outcome.output}:")
            print(textwrap.indent(within.tail(folder / f"{outcome.release}.log"), "  "))
    counts = [(sum(outcome.outcome == name for outcome in outcomes), name) for name in get_args(Name)]
    print(f"\n{', '.join(f'{count} {name}' for count, name in counts if count)}; outputs are in {folder}")
