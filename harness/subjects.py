"""What a search asks of every build: a case of the suite, a command of the user, an object of the surface."""

from __future__ import annotations

import difflib
import json
import re
import signal
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from . import builds, diff, environments, evidence, findings, local, sources, uses, watched, wheels, within
from .errors import CannotTestError, EnvironmentUnusableError, NoCommandError, UsageError
from .findings import Finding
from .journal import Observation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .environments import Environment
    from .releases import Build, Device

# As a shell tells it, and `within`: 128 and the number of the signal.
_SIGNALS = {128 + number: number.name for number in signal.Signals}

# Not `evidence.json`: a case held to another release is no row of a report on the folder that it lies in.
_RECORD = "case.json"


@dataclass(frozen=True, kw_only=True)
class Subject(ABC):
    """One question, the same for every build."""

    needs_environment: ClassVar[bool] = True
    requirements: Sequence[str] = ()
    timeout: float | None = None

    @abstractmethod
    def ask(self, build: Build, folder: Path) -> Observation:
        """What a build does; what is said goes into files in ``folder``, which exists."""

    @abstractmethod
    def same(self, sought: Finding, seen: Finding) -> bool:
        """Whether a build fails as the bad end does."""

    def key(self, build: Build) -> str | None:
        """Builds in a row with the same key cannot differ in their answer; None for a build that may."""
        del build
        return None

    def question(self) -> dict[str, Any]:
        """What is asked, as plain data."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, kw_only=True)
class _InEnvironment(Subject):
    def ask(self, build: Build, folder: Path) -> Observation:
        try:
            environment = environments.ensure(builds.completed(build), requirements=self.requirements)
        except EnvironmentUnusableError as error:
            return Observation(outcome="untestable", reason=str(error), lasting=False)
        log = folder / "output.log"
        try:
            ended = within.run(environment, self._command(environment, folder), log=log, timeout=self.timeout)
        except NoCommandError as error:
            return Observation(outcome="untestable", reason=str(error), lasting=False)
        if ended.timed_out:
            return Observation(
                outcome="untestable",
                reason=f"not done within {self.timeout:g} s",
                seconds=ended.seconds,
                log=str(log),
            )
        return self._read(ended, folder, log)

    def question(self) -> dict[str, Any]:
        """As what the files that it is about hold: edited, they are another question."""
        places = {path for requirement in self.requirements if (path := local.path(requirement))}
        places |= set(self._files())
        return {**super().question(), "files": {str(place): local.state(place) for place in places}}

    def _files(self) -> list[Path]:
        """The files and folders that are asked about beside the requirements."""
        return []

    @abstractmethod
    def _command(self, environment: Environment, folder: Path) -> list[str]: ...

    @abstractmethod
    def _read(self, ended: within.Ended, folder: Path, log: Path) -> Observation: ...


def _is_there(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # A word too long for a name.
        return False


@dataclass(frozen=True, kw_only=True)
class CommandSubject(_InEnvironment):
    """A command: 0 is good, 125 cannot be tested, everything else is bad, as for ``git bisect run``.

    With ``failure``, a pattern, only a failure that says it is the one sought.
    """

    command: Sequence[str]
    failure: str | None = None

    def __post_init__(self) -> None:
        try:
            re.compile(self.failure or "")
        except re.error as error:
            raise UsageError(f"--failure {self.failure!r} is no pattern: {error}") from error

    def same(self, sought: Finding, seen: Finding) -> bool:
        return sought.expected == seen.expected

    def _files(self) -> list[Path]:
        """Those that its words name, also as ``--option=FILE`` and as ``FILE::test``."""
        words = (word.rpartition("=")[2].partition("::")[0] for word in self.command)
        return [place for word in words if word and _is_there(place := Path(word))]

    def _command(self, environment: Environment, folder: Path) -> list[str]:
        return list(self.command)

    def _read(self, ended: within.Ended, folder: Path, log: Path) -> Observation:
        if ended.status == 0:
            return Observation(outcome="passed", seconds=ended.seconds, log=str(log))
        said = log.read_text(encoding="utf-8", errors="replace")
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
        how = f"exit status {ended.status}"
        expected = "the command to exit with 0"
        if ended.status in _SIGNALS:
            how = f"signal {_SIGNALS[ended.status]}"
            expected = "the command not to be ended by a signal"
        another = self.failure is not None and not re.search(self.failure, said)
        if ended.status == CannotTestError.exit_code or another:
            reason = how if self.failure is None else f"{how}, without {self.failure!r}"
            return Observation(outcome="untestable", reason=f"{reason}: {last}", seconds=ended.seconds, log=str(log))
        finding = Finding(
            expected=expected,
            got=f"{how}: {last}",
            cause="what the command needs of vLLM changed",
            advice=f"read {log}, and below what changed in this step",
        )
        return Observation(outcome="failed", finding=finding, seconds=ended.seconds, log=str(log))


@dataclass(frozen=True, kw_only=True)
class CaseSubject(_InEnvironment):
    """A case, held to what the good release did: each release conforms to its own snapshots.

    ``case`` is an id as `harness check` prints it; without the brackets, all its engines.
    """

    case: str
    client: str | None
    device: Device
    snapshots_of: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"test_\w+\.py::\w+(\[.+\])?", self.case):
            raise UsageError(
                f"{self.case!r} is no case: give its id as `harness check` prints it, "
                f"test_reply.py::test_first_rank[executor-mp-tp2] say"
            )

    def same(self, sought: Finding, seen: Finding) -> bool:
        return findings.alike(sought, seen)

    def question(self) -> dict[str, Any]:
        snapshots = self.snapshots_of if self.device == "cpu" else f"{self.snapshots_of}-{self.device}"
        return {**super().question(), "suite": sources.digest(sources.suite(), snapshots)}

    def key(self, build: Build) -> str | None:
        """What was recorded for the case on the release, and the part of the surface that the client relies on.

        None where either is not known: a case without a snapshot looks at more than structure.
        """
        file, _, name = self.case.partition("::")
        client = self.client or next(
            (known for known in uses.declared() if name.partition("[")[2].startswith(f"{known}-")), None
        )
        path = sources.suite() / "snapshots" / build.release / f"{file.removesuffix('.py')}.json"
        recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if client is None or client not in uses.declared() or name not in recorded:
            return None
        try:
            found = wheels.surface_of(build)
        except EnvironmentUnusableError:
            return None
        relied_on = [
            (entry.place, entry.parameters, entry.returns)
            for object_name, entry in sorted(found.items())
            if object_name in uses.declared()[client].objects
        ]
        return json.dumps([recorded[name], relied_on])

    def _command(self, environment: Environment, folder: Path) -> list[str]:
        file, _, name = self.case.partition("::")
        return [
            *(str(environment.python), "-m", "harness", "check", "--device", self.device),
            *("-k", f"{file} and {name}", "--snapshots-of", self.snapshots_of),
            *("--evidence", str(folder / _RECORD)),
            *(("--client", self.client) if self.client else ()),
        ]

    def _read(self, ended: within.Ended, folder: Path, log: Path) -> Observation:
        try:
            record = evidence.read(folder / _RECORD)
        except UsageError:
            last = within.tail(log, 1) or "it said nothing"
            return Observation(
                outcome="untestable",
                reason=f"no evidence: {last}",
                seconds=ended.seconds,
                log=str(log),
                lasting=ended.status != EnvironmentUnusableError.exit_code,
            )
        ran = [row for row in record["cases"] if row["id"] == self.case or row["id"].startswith(f"{self.case}[")]
        for row in ran:
            if row["outcome"] in ("failed", "error", "known-fault") and row["finding"] is not None:
                finding = Finding(**row["finding"])
                return Observation(outcome="failed", finding=finding, seconds=ended.seconds, log=str(log))
        if any(row["outcome"] == "passed" for row in ran):
            return Observation(outcome="passed", seconds=ended.seconds, log=str(log))
        reason = next((row["reason"] for row in ran if row["reason"]), "the case did not run")
        return Observation(outcome="untestable", reason=reason, seconds=ended.seconds, log=str(log))


@dataclass(frozen=True, kw_only=True)
class ObjectSubject(Subject):
    """An object of the surface: whether it is as in the good build; read from wheels, nothing is installed."""

    needs_environment: ClassVar[bool] = False

    name: str
    good: Build

    def __post_init__(self) -> None:
        if self.name not in watched.names():
            near = difflib.get_close_matches(self.name, sorted(watched.names()), n=3) or ["Request.__init__"]
            raise UsageError(
                f"{self.name!r} is not looked at: give an object of the surface as `harness diff` names it, "
                f"{' or '.join(near)}"
            )

    def ask(self, build: Build, folder: Path) -> Observation:
        del folder
        try:
            before, now = (
                {name: entry for name, entry in wheels.surface_of(one).items() if name == self.name}
                for one in (self.good, build)
            )
        except EnvironmentUnusableError as error:
            return Observation(outcome="untestable", reason=str(error), lasting=False)
        changes = diff.compare(before, now)
        if not changes:
            return Observation(outcome="passed")
        finding = Finding(
            expected=f"{self.name} as in {self.good.release}",
            got="\n".join(f"{change.kind}: {change.detail}" for change in changes),
            cause="vLLM changed it",
            advice="below is what else changed in this step",
        )
        return Observation(outcome="failed", finding=finding)

    def same(self, sought: Finding, seen: Finding) -> bool:
        """Any change is one: an object may change twice on the way."""
        return sought.expected == seen.expected

    def question(self) -> dict[str, Any]:
        return {"object": self.name, "good": self.good.release}
