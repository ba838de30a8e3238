"""Running the cases on prepared engines: pytest in a process of its own, and the record of what came of it."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__, evidence, identity, machine, processes, sources, work
from .errors import INTERRUPTED, HarnessError, UsageError
from .evidence import CaseResult, EngineResult, Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .options import Options
    from .run import Run
    from .settings import Group

# After ^C: closing an engine takes vLLM up to 8 s, and pytest ends one after the other.
CLOSING_SECONDS = 60.0
_PYTEST_INTERRUPTED = 2
_PYTEST_USAGE_ERROR = 4
_PYTEST_NO_TESTS = 5


def conduct(
    options: Options,
    facts: dict[str, Any],
    groups: Sequence[Group],
    results: Path,
    prepared: Callable[[Path], Run],
) -> tuple[int, Evidence]:
    """Run the cases on some engines; logs and JUnit XML go beside ``results`` (`work`), which is not written here.

    Args:
        options: how.
        facts: what the evidence is bound to.
        groups: the engines.
        results: where the evidence is going to be.
        prepared: fills a work folder, and says what the run is about.

    Returns:
        The exit code, and the record.

    Raises:
        UsageError: there is no place for what is left beside ``results``.
    """
    evidence.require_writable(results)
    work.claim(results)
    build = identity.build(facts)
    bound = identity.of_run(
        options.device, {group.client for group in groups}, build.environment if build is not None else {}
    )
    release = facts["release"] or facts["version"]
    record = Evidence(
        harness=__version__,
        environment={**facts, **bound},
        settings={
            "clients": sorted({group.client for group in groups}),
            "device": options.device,
            "dtype": options.dtype,
            "model_runner": options.model_runner,
            "snapshots": options.snapshots(release),
            "groups": [group.name for group in groups],
            "keyword": options.keyword,
            "whole": options.whole,
            "narrowed": options.narrowed,
            "only": {name: list(cases) for name, cases in options.only.items()},
            # Held to what another release did, a run says nothing about this one's conformance.
            **({"snapshots_of": options.snapshots_of} if options.snapshots_of else {}),
        },
        suite=sources.digest(sources.suite(), options.snapshots(release)),
        started=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    with work.work_folder(work.logs_of(results)) as folder:
        run = prepared(folder)
        options.say(f"vLLM {facts['version']} ({facts['distribution']}), {facts['generation']}, {options.device}")
        options.say(f"{len(groups)} engines: {', '.join(group.name for group in groups)}")
        for client, names in run.repairs.items():
            options.say(f"{client} opens with {', '.join(names)}")
        code = _run_cases(run, options, record, work.junit_of(results))
    return code, record


def _run_cases(run: Run, options: Options, record: Evidence, junit: Path) -> int:
    start = time.monotonic()
    reference = start_reference(run)
    try:
        status = _pytest(run, options, junit)
    finally:
        if reference is not None:
            reference.kill()
            reference.wait()
    record.seconds = round(time.monotonic() - start, 1)
    _read(Path(run.work) / "results.json", record, status)
    return _exit_code(status, record, options)


def _pytest(run: Run, options: Options, junit: Path) -> int:
    """Run pytest in a process of its own, and end what is left of it: a crash there still leaves a record here.

    Returns:
        As `_wait`.
    """
    lifeline, ours = os.pipe()
    cases = subprocess.Popen(
        [*_command(run, options, junit), f"--harness-lifeline={lifeline}"],
        stdout=sys.stderr if options.as_json else None,
        # vLLM leaves sockets and rendezvous files in the temporary folder: they go with ours.
        env={**processes.own_variables(), "TMPDIR": run.work},
        pass_fds=(lifeline,),
        start_new_session=True,
    )
    os.close(lifeline)
    try:
        return _wait(cases)
    finally:
        os.close(ours)
        processes.end_session(cases.pid)


def _command(run: Run, options: Options, junit: Path) -> list[str]:
    folder = sources.suite() / "cases"
    command = [
        *(
            sys.executable,
            "-m",
            "pytest",
            "-c",
            str(folder / "pytest.toml"),
            f"--rootdir={folder}",
            str(folder),
        ),
        # Not whatever else is installed beside vLLM.
        *("--disable-plugin-autoload", "-p", "xdist", "-p", "pytest_timeout", "-p", "syrupy"),
        *("-p", "harness.plugin", "-p", "harness.walking", "-p", "harness.unused", "-p", "no:cacheprovider"),
        *(f"--harness-run={Path(run.work) / 'run.json'}", f"--junit-xml={junit}", "-o", "junit_family=xunit2"),
        *("-q", "--tb=no", "--no-header", "--no-summary"),
    ]
    count = machine.jobs(run.groups, options.jobs, run.variables)
    if count > 1:
        # A crash is not tried again: with loadgroup, xdist gives the case that crashed to worker after worker.
        command += ["-n", str(count), "--dist", "loadgroup", "--max-worker-restart", "0"]
    if options.keyword:
        command += ["-k", options.keyword]
    if options.update_snapshots:
        command.append("--snapshot-update")
    if options.own_engines or options.only or options.keyword:
        # The snapshots of what was left out are not unused. syrupy looks for a keyword in their names alone.
        command.append("--snapshot-disable-unused")
    return command


def _read(results: Path, record: Evidence, status: int) -> None:
    """Take over what pytest has kept: nothing, if ^C came before its first case or it had to be killed after one.

    Raises:
        HarnessError: it kept nothing for another reason, or an engine booted twice.
    """
    if not results.exists():
        if status == INTERRUPTED:
            return
        raise HarnessError(f"pytest ended with status {status} and kept no results; what it said is above")
    loaded = json.loads(results.read_text(encoding="utf-8"))
    record.engines = [EngineResult(**engine) for engine in loaded["engines"]]
    record.cases = [CaseResult(**case) for case in loaded["cases"]]
    booted = [engine.group for engine in record.engines]
    if twice := sorted({group for group in booted if booted.count(group) > 1}):
        raise HarnessError(
            f"{', '.join(twice)} booted more than once: pytest-xdist did not keep their cases together"
        )


def _wait(cases: subprocess.Popen[bytes]) -> int:
    """The exit status of pytest; `INTERRUPTED` after ^C, once it has closed its engines."""
    try:
        return processes.wait(cases, CLOSING_SECONDS)
    except KeyboardInterrupt:
        cases.kill()
        cases.wait()
        return INTERRUPTED


def _exit_code(status: int, record: Evidence, options: Options) -> int:
    # A case file that cannot be imported ends pytest with the status of an interrupt; it is a finding.
    if status == INTERRUPTED or (status == _PYTEST_INTERRUPTED and record.verdict != "findings"):
        record.interrupted = True
        return INTERRUPTED
    if status == _PYTEST_USAGE_ERROR and options.keyword:
        raise UsageError(f"-k {options.keyword!r} is no expression that pytest can read; what it said is above")
    if status == _PYTEST_NO_TESTS:
        raise UsageError(f"-k {options.keyword!r} selects no case")
    if status not in (0, 1, _PYTEST_INTERRUPTED):
        raise HarnessError(f"pytest could not run the cases (status {status}); what it said is above")
    if status == 1 and record.verdict == "conforms":
        # An unused snapshot fails the session and no case.
        record.interrupted = True
    return 0 if record.verdict == "conforms" else 1


def start_reference(run: Run) -> subprocess.Popen[bytes] | None:
    """The Hugging Face forwards go on beside the first boot; the cases wait for them. None if all are there."""
    if all(run.reference(kind).exists() for kind in run.checkpoints):
        return None
    with (run.logs / "reference.log").open("wb") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "harness.reference", str(Path(run.work) / "prompts.json")),
                *(part for kind, folder in run.checkpoints.items() for part in (folder, str(run.reference(kind)))),
            ],
            env={**run.variables, **processes.own_variables()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
