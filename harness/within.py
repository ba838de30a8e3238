"""A command within a release's environment: its output in a file, its time bounded, nothing of it left running."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from . import processes, sources
from .errors import NoCommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from .environments import Environment

# What a command gets to end in its own way after ^C: `harness check` closes its engines one after the other.
ENDING_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended: exit status (128 + n after signal n), and whether that was for its time being up."""

    status: int
    seconds: float
    timed_out: bool = False


def variables(environment: Environment) -> dict[str, str]:
    """As in the activated environment, with what the release needs set; what the user has set wins."""
    own = processes.child_variables()
    path = os.pathsep.join((str(environment.path / "bin"), own.get("PATH", os.defpath)))
    return {**environment.build.environment, **own, "VIRTUAL_ENV": str(environment.path), "PATH": path}


class Running:
    """A command that was started; `end`, or leaving the context, ends all of its session."""

    def __init__(self, command: Sequence[str], *, variables: Mapping[str, str], log: Path) -> None:
        """Start it.

        Args:
            command: what to run, found on the PATH of ``variables``.
            variables: all of its environment variables.
            log: where both of its streams go.

        Raises:
            NoCommandError: there is no such command.
        """
        if shutil.which(command[0], path=variables["PATH"]) is None:
            raise NoCommandError(f"{command[0]!r} is no command: it is neither in the environment nor on the PATH")
        self._started = time.monotonic()
        self._lifeline: int | None
        lifeline, self._lifeline = os.pipe()
        with log.open("wb") as output:
            self._keeper = subprocess.Popen(
                sources.python("harness.keeper", str(lifeline), *command),
                env=sources.python_variables(),  # The keeper's own: the command gets only what is given.
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(lifeline,),
                start_new_session=True,
            )
        os.close(lifeline)
        assert self._keeper.stdin is not None
        with self._keeper.stdin as stdin:
            stdin.write(json.dumps(dict(variables)).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Now, whatever it is doing. Also when it has ended."""
        processes.end_session(self._keeper.pid)
        self._keeper.wait()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def wait(self, timeout: float | None = None) -> Ended:
        """Until it has ended, or its time is up; it is interrupted then, and after ^C, as ^C would."""
        timed_out = False
        try:
            self._keeper.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            self._interrupt()
        except KeyboardInterrupt:
            self._interrupt()
            raise
        seconds = time.monotonic() - self._started
        return Ended(status=self._keeper.wait(), seconds=round(seconds, 1), timed_out=timed_out)

    def _interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._keeper.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            self._keeper.wait(ENDING_SECONDS)
        processes.end_session(self._keeper.pid)


def run(environment: Environment, command: Sequence[str], *, log: Path, timeout: float | None = None) -> Ended:
    """Run a command in an environment.

    Args:
        environment: whose interpreter and scripts come first on the PATH.
        command: what to run, in the current folder.
        log: where both of its streams go.
        timeout: seconds; None for as long as it takes.

    Raises:
        NoCommandError: there is no such command.
    """
    with Running(command, variables=variables(environment), log=log) as running:
        return running.wait(timeout)


def tail(log: Path, lines: int = 15) -> str:
    """The end of what a command said."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    return ""
