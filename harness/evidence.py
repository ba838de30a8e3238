"""The machine-readable record of one run of the suite, bound to the environment it ran in."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from .errors import EnvironmentUnusableError, UsageError
from .findings import Finding
from .writing import write_whole

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 2

Outcome: TypeAlias = Literal["passed", "failed", "error", "known-fault", "not-applicable", "skipped"]
BROKEN: tuple[Outcome, ...] = ("failed", "error", "skipped")


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case on one engine. ``finding`` is `Finding.as_dict`; ``reason`` says why it did not simply pass."""

    id: str
    outcome: Outcome
    seconds: float
    reason: str = ""
    finding: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class EngineResult:
    """One engine that was opened, with its timings in seconds and the processes it left behind.

    ``repairs`` is what its client changed in vLLM, or let stand in for something, to run here at all.
    """

    group: str
    spec: dict[str, Any]
    timings: dict[str, float]
    left_behind: list[int]
    repairs: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Evidence:
    """Everything a gate needs to know about a run; ``suite`` is the digest of the cases and of the harness."""

    harness: str
    environment: dict[str, Any]
    settings: dict[str, Any]
    started: str
    suite: str = ""
    seconds: float = 0.0
    interrupted: bool = False
    engines: list[EngineResult] = field(default_factory=list)
    cases: list[CaseResult] = field(default_factory=list)

    @property
    def verdict(self) -> Literal["conforms", "findings", "incomplete"]:
        """``incomplete`` when nothing ran or the run was cut short: never a pass."""
        if any(case.outcome in BROKEN for case in self.cases):
            return "findings"
        if self.interrupted or not any(case.outcome == "passed" for case in self.cases):
            return "incomplete"
        return "conforms"

    def counts(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for case in self.cases:
            counted[case.outcome] = counted.get(case.outcome, 0) + 1
        return counted

    def as_dict(self) -> dict[str, Any]:
        body = {"schema": SCHEMA, "verdict": self.verdict, **asdict(self)}
        body["cases"].sort(key=lambda case: case["id"])
        body["engines"].sort(key=lambda engine: engine["group"])
        return {**body, "digest": digest(body)}


def digest(body: dict[str, Any]) -> str:
    """SHA-256 over the record without its digest: shows that a file was edited, not who wrote it."""
    plain = {key: value for key, value in body.items() if key != "digest"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def require_writable(path: Path) -> None:
    """Find out before the first engine boots that the record could not be kept.

    Raises:
        UsageError: the folder cannot be made or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"results cannot be written to {path.parent}: {error.strerror}. Give another place with --evidence."
        ) from error


def write(path: Path, record: Evidence) -> None:
    """Write the record, all of it or nothing.

    Raises:
        EnvironmentUnusableError: it cannot be written; a record from before is still whole.
    """
    try:
        write_whole(path, json.dumps(record.as_dict(), indent=1) + "\n")
    except OSError as error:
        raise EnvironmentUnusableError(
            f"evidence cannot be written to {path}: {error.strerror}. Free some space or give another place "
            f"with --evidence; the run's findings are printed above."
        ) from error


def read(path: Path) -> dict[str, Any]:
    """A record as plain data.

    Raises:
        UsageError: it is missing, is no evidence of this schema, or was changed after it was written.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}. `harness check --evidence {path}` writes it.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}. Run `harness check` again.") from error
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        raise UsageError(f"{path} is not evidence of schema {SCHEMA}. Run `harness check` again.")
    if body.get("digest") != digest(body):
        raise UsageError(f"{path} was changed after it was written: its digest is not of its content.")
    return body


def load(path: Path) -> Evidence:
    """A record as `Evidence`.

    Raises:
        UsageError: as `read`; or its parts, or its verdict and its cases, do not fit together.
    """
    body = read(path)
    plain = {key: value for key, value in body.items() if key not in {"schema", "verdict", "digest"}}
    try:
        plain["engines"] = [EngineResult(**engine) for engine in body["engines"]]
        plain["cases"] = [CaseResult(**case) for case in body["cases"]]
        record = Evidence(**plain)
        for case in record.cases:
            if case.finding is not None:
                Finding(**case.finding)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path} lacks a part or has one too many: {error}. Run `harness check` again.") from error
    unknown = {case.outcome for case in record.cases} - set(get_args(Outcome))
    if unknown or record.verdict != body.get("verdict"):
        said = f"there is no outcome {', '.join(sorted(unknown))}" if unknown else f"its cases say {record.verdict}"
        raise UsageError(f"{path} says {body.get('verdict')}, but {said}. Run `harness check` again.")
    return record
