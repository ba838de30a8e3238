"""The suite on many releases in turn: what conforms already is kept, and one that cannot run stops no other."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from . import __version__, environments, evidence, hardware, processes, sources, terminal, uv, variables
from .errors import FINDINGS, INTERRUPTED, OK, EnvironmentUnusableError, UsageError
from .report.gather import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .environments import Environment
    from .evidence import Evidence
    from .options import Options
    from .releases import Build

# `harness check` gives its engines 60 s after ^C, and then writes its evidence.
CLOSING_SECONDS = 75.0
PROBE_SECONDS = 120.0
# Measured: with PyPI's CUDA build of torch an environment takes 8.0 GB (0.11.0, 0.16.0), with a CPU build 3.1 GB
# (0.32.0), and 0.1 GB of either is bytecode that uv's cache does not have. The rest is for logs and for a wheel
# that is being unpacked.
NEEDED_BYTES = 10 * 1000**3

Verdict: TypeAlias = Literal["conforms", "findings", "incomplete", "cannot run", "no result", "not reached"]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of one release; ``kept``: its evidence is of an earlier run; ``seconds``: what this one took."""

    release: str
    verdict: Verdict
    code: int
    note: str
    kept: bool = False
    seconds: float = 0.0


def check_all(
    builds: Sequence[Build], arguments: Sequence[str], asked: Options, *, prune: bool, as_json: bool
) -> int:
    """Run the suite on every build.

    Args:
        builds: what to run it on, in this order.
        arguments: for `harness check`; with any, nothing is kept.
        asked: what they say.
        prune: remove environments of builds that are done where the disk is short.
        as_json: print the table as JSON, and everything else to stderr.

    Returns:
        0 if all conform; 1 on findings; else the code of the first that has no result; 130 after ^C.
    """
    ended: list[Ended] = []
    interrupted = False
    try:
        for number, build in enumerate(builds, 1):
            terminal.say(f"[{number}/{len(builds)}] {build.requirement}", as_json=as_json)
            done = builds[: number - 1] if prune else None
            ended.append(_one(build, arguments, asked, done=done, as_json=as_json))
            terminal.say(f"{build.release}: {ended[-1].verdict}: {ended[-1].note}", as_json=as_json)
    except KeyboardInterrupt:
        interrupted = True
    left = [
        Ended(
            release=build.release, verdict="not reached", code=INTERRUPTED, note="interrupted; the next run does it"
        )
        for build in builds[len(ended) :]
    ]
    rows = [*ended, *left]
    print(json.dumps([asdict(row) for row in rows], indent=1) if as_json else "\n".join(["", *_table(rows)]))
    return INTERRUPTED if interrupted else _exit_code(rows)


def _exit_code(rows: Sequence[Ended]) -> int:
    codes = [row.code for row in rows if row.code != OK]
    return FINDINGS if FINDINGS in codes else next(iter(codes), OK)


def _table(rows: Sequence[Ended]) -> list[str]:
    lines = [f"{'release':<10}{'verdict':<13}{'took':>7}  cases"]
    for row in rows:
        took = "kept" if row.kept else f"{row.seconds:.0f} s"
        lines.append(f"{row.release:<10}{row.verdict:<13}{took:>7}  {row.note}")
    return lines


def _one(
    build: Build, arguments: Sequence[str], asked: Options, *, done: Sequence[Build] | None, as_json: bool
) -> Ended:
    path = Path("results") / asked.results(build.release) / "evidence.json"
    if not arguments:
        try:
            record = kept(build, path, asked)
        except UsageError as error:
            print(f"{build.release} runs: {error}", file=sys.stderr)
        else:
            note = sentence(record.counts())
            return Ended(release=build.release, verdict="conforms", code=OK, note=note, kept=True)
    start = time.monotonic()
    try:
        if done is not None:
            make_room(build, done)
        environment = environments.ensure(build)
    except EnvironmentUnusableError as error:
        return Ended(release=build.release, verdict="cannot run", code=error.exit_code, note=str(error))
    before = _file(path)
    code = _check(environment, [*arguments, "--evidence", str(path)], as_json=as_json)
    return _result(build, path, code, time.monotonic() - start, written=_file(path) != before)


def _file(path: Path) -> tuple[int, int] | None:
    """Which file is there: evidence is written as a new one, which then takes the place of the old."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _result(build: Build, path: Path, code: int, seconds: float, *, written: bool) -> Ended:
    verdict: Verdict = "no result"
    note = f"`harness check` exited with {code} and left no evidence that says so; what it said is above"
    if written:
        with contextlib.suppress(UsageError):
            record = evidence.load(path)
            if (record.verdict == "conforms") == (code == OK):
                verdict, note = record.verdict, sentence(record.counts())
    code = OK if verdict == "conforms" else code or FINDINGS
    return Ended(release=build.release, verdict=verdict, code=code, note=note, seconds=seconds)


def kept(build: Build, path: Path, asked: Options) -> Evidence:
    """The evidence of an earlier run, if running the suite again would be the same run.

    Raises:
        UsageError: it would not; the message says why.
    """
    if not path.exists():
        raise UsageError("there is no evidence of it yet")
    record = evidence.load(path)
    if record.verdict != "conforms":
        raise UsageError(f"its evidence says {record.verdict}")
    if not record.settings.get("whole"):
        raise UsageError("its evidence is of a part of the suite")
    suite = sources.digest(sources.suite(), asked.snapshots(build.release))
    if (record.harness, record.suite) != (__version__, suite):
        raise UsageError("its evidence is of another state of the suite")
    environment = environments.existing(build)
    # One that was removed to make room would be made again from the same row, which the suite's digest covers.
    facts = _facts(build) if environment is None else _probe(environment)
    # As `identity.of_run`, which needs more than nox brings. The clients of a whole run are in the suite's digest.
    facts["devices"] = hardware.describe(asked.device)
    facts["variables"] = variables.bound(build.environment, os.environ)
    differing = sorted(name for name, value in facts.items() if record.environment.get(name) != value)
    if differing:
        raise UsageError(f"its evidence is of another environment: {', '.join(differing)}")
    return record


def _facts(build: Build) -> dict[str, Any]:
    """What `identity.environment` would say of an environment that is not there, as far as that can be known."""
    return {
        "distribution": build.distribution,
        "version": build.version,
        "release": build.release,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
    }


def _probe(environment: Environment) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [str(environment.python), "-m", "harness", "probe", "--json"],
            env=processes.child_variables(),
            check=True,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
        )
        facts: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UsageError(f"{environment.path} cannot be probed: {error}") from error
    return facts


def make_room(build: Build, done: Sequence[Build]) -> None:
    """Remove what is done with until one more environment fits: the oldest first, at last what uv's cache unpacked.

    Args:
        build: whose environment is made next; nothing is removed if it is there.
        done: whose environments may go.
    """
    if environments.existing(build) is not None:
        return
    for other in done:
        if _free() >= NEEDED_BYTES:
            return
        if environments.existing(other) is None:
            continue
        print(f"making room: removing the environment of {other.requirement}", file=sys.stderr)
        environments.remove(other)
    if _free() < NEEDED_BYTES:
        print("making room: removing what uv's cache unpacked", file=sys.stderr)
        uv.prune()


def _free() -> int:
    """Bytes on the disk of the environments."""
    folder = next(folder for folder in (environments.root(), *environments.root().parents) if folder.exists())
    return shutil.disk_usage(folder).free


def _check(environment: Environment, arguments: Sequence[str], *, as_json: bool) -> int:
    process = subprocess.Popen(
        [str(environment.python), "-m", "harness", "check", *arguments],
        env=processes.child_variables(),
        stdout=sys.stderr if as_json else None,
        start_new_session=True,
    )
    try:
        return processes.wait(process, CLOSING_SECONDS)
    finally:
        processes.end_session(process.pid)
        process.wait()
