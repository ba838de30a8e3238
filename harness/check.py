"""Running the cases where the harness stands, and writing evidence of it."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__, clients, evidence, identity, machine, processes, releases, report, settings
from .errors import HarnessError, UsageError
from .evidence import CaseResult, EngineResult, Evidence
from .prompts import prompts
from .run import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .releases import Build, Device
    from .settings import Group

INTERRUPTED = 130
# After ^C: closing an engine takes vLLM up to 8 s, and pytest ends one after the other.
CLOSING_SECONDS = 60.0
_PYTEST_INTERRUPTED = 2
_PYTEST_USAGE_ERROR = 4
_PYTEST_NO_TESTS = 5


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line of ``harness check`` says."""

    clients: tuple[str, ...]
    device: Device
    tensor_parallel_sizes: tuple[int, ...]
    keyword: str
    evidence: Path | None
    update_snapshots: bool
    jobs: int | None
    as_json: bool
    snapshots_of: str | None = None


def suite() -> Path:
    """The folder that holds ``cases`` and ``snapshots``: the project's, or the installed copy."""
    package = Path(__file__).resolve().parent
    for folder in (package.parent, package / "suite"):
        if (folder / "cases" / "pytest.toml").exists():
            return folder
    raise UsageError(f"the cases are missing beside {package}: install the project again")


def check(options: Options) -> int:
    """Run the suite.

    Returns:
        0 if everything conforms, 1 on findings, 130 after ^C.

    Raises:
        EnvironmentUnusableError: there is no usable vLLM here.
        UsageError: a client or a path is wrong.
    """
    facts = identity.environment()
    groups = _willing(settings.plan(options.clients, options.tensor_parallel_sizes), options)
    release = facts["release"] or facts["version"]
    results = options.evidence or Path("results") / f"{release}-{options.device}" / "evidence.json"
    evidence.require_writable(results)
    build = releases.of_distribution(facts["distribution"], facts["version"])
    record = Evidence(
        harness=__version__,
        environment=facts,
        settings={
            "clients": sorted({group.client for group in groups}),
            "device": options.device,
            "groups": [group.name for group in groups],
            "keyword": options.keyword,
            # Held to what another release did, a run says nothing about this one's conformance.
            **({"snapshots_of": options.snapshots_of} if options.snapshots_of else {}),
        },
        started=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    with _work_folder(results.parent / "logs") as work:
        run = _prepare(work, release, options, groups, build)
        _say(
            options,
            f"vLLM {facts['version']} ({facts['distribution']}), {facts['generation']}, {options.device}",
        )
        _say(options, f"{len(groups)} engines: {', '.join(group.name for group in groups)}")
        code = _run_cases(run, options, record, results.with_name("junit.xml"))
    # Printed first: a full disk must not take the findings with it.
    if options.as_json:
        print(json.dumps(record.as_dict(), indent=1))
    else:
        report.terminal(record, results)
    evidence.write(results, record)
    report.step_summary(record)
    return code


def _willing(groups: list[Group], options: Options) -> list[Group]:
    """The groups that their clients do not refuse.

    Raises:
        UsageError: a client cannot be loaded, or none is left.
    """
    left = []
    for group in groups:
        spec = group.setting.spec(model="", layers=(0,), device=options.device)
        if reason := clients.load(group.client).refuses(spec):
            _say(options, f"{group.name} is left out: {group.client} {reason}")
        else:
            left.append(group)
    if not left:
        raise UsageError("no engine setting is left: choose another --client or --tensor-parallel-size")
    return left


def _say(options: Options, line: str) -> None:
    print(line, file=sys.stderr if options.as_json else sys.stdout, flush=True)


@contextlib.contextmanager
def _work_folder(logs: Path) -> Iterator[Path]:
    """A folder for this run; the engines' logs are kept, and no host survives it."""
    work = Path(tempfile.mkdtemp(prefix="harness-"))
    (work / "logs").mkdir()
    try:
        yield work
    finally:
        for mark in (work / "logs").glob("*.pid"):
            processes.end_session(int(mark.stem))
            mark.unlink()
        with contextlib.suppress(OSError):
            shutil.rmtree(logs, ignore_errors=True)
            shutil.copytree(work / "logs", logs)
        shutil.rmtree(work, ignore_errors=True)


def _prepare(work: Path, release: str, options: Options, groups: Sequence[Group], build: Build | None) -> Run:
    from .models import deepseek_v2

    checkpoint = deepseek_v2.write(work / "deepseek-v2")
    run = Run(
        release=release,
        device=options.device,
        dtype="float32",
        groups=tuple(groups),
        layers=(deepseek_v2.NUM_LAYERS - 1, 0, 2, 1, 3),
        checkpoint=str(checkpoint),
        work=str(work),
        snapshots=_held_to(release, options),
        variables=build.environment if build else {},
        repair=_repair(build),
    )
    run.write(work / "run.json")
    (work / "prompts.json").write_text(json.dumps(prompts(deepseek_v2.VOCAB_SIZE)), encoding="utf-8")
    return run


def _held_to(release: str, options: Options) -> str:
    """The folder of the snapshots that this vLLM is compared with."""
    return str(suite() / "snapshots" / (options.snapshots_of or release))


def _repair(build: Build | None) -> dict[str, Any]:
    """The fields of `EngineSpec` that a build's repair sets."""
    if build is None or build.repair is None:
        return {}
    repair = build.repair
    return {
        **({"extra_arguments": dict(repair.engine_arguments)} if repair.engine_arguments else {}),
        **({"extension": repair.extension} if repair.extension else {}),
    }


def _run_cases(run: Run, options: Options, record: Evidence, junit: Path) -> int:
    """Run pytest in a process of its own: a crash there still leaves a record here."""
    folder = suite() / "cases"
    lifeline, ours = os.pipe()
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
        *("-p", "harness.plugin", "-p", "no:cacheprovider", f"--harness-run={Path(run.work) / 'run.json'}"),
        *(f"--harness-lifeline={lifeline}", f"--junit-xml={junit}", "-o", "junit_family=xunit2"),
        *("-q", "--tb=no", "--no-header", "--no-summary"),
    ]
    count = machine.jobs(len(run.groups), options.jobs, run.variables)
    if count > 1:
        # A crash is not tried again: with loadgroup, xdist gives the case that crashed to worker after worker.
        command += ["-n", str(count), "--dist", "loadgroup", "--max-worker-restart", "0"]
    if options.keyword:
        command += ["-k", options.keyword]
    if options.update_snapshots:
        command.append("--snapshot-update")
    if options.clients or options.tensor_parallel_sizes or options.snapshots_of:
        # The snapshots of the engines that were left out are not unused.
        command.append("--snapshot-disable-unused")

    start = time.monotonic()
    reference = _start_reference(run)
    # A session of its own: ^C reaches this process alone, which passes it on once.
    cases = subprocess.Popen(
        command,
        stdout=sys.stderr if options.as_json else None,
        # vLLM leaves sockets and rendezvous files in the temporary folder: they go with ours.
        env={**os.environ, "TMPDIR": run.work},
        pass_fds=(lifeline,),
        start_new_session=True,
    )
    os.close(lifeline)
    try:
        status = _wait(cases)
    finally:
        os.close(ours)
        processes.end_session(cases.pid)
        reference.kill()
        reference.wait()
    record.seconds = round(time.monotonic() - start, 1)
    results = Path(run.work) / "results.json"
    if not results.exists():
        raise HarnessError(f"pytest ended with status {status} and kept no results; what it said is above")
    loaded = json.loads(results.read_text(encoding="utf-8"))
    record.engines = [EngineResult(**engine) for engine in loaded["engines"]]
    record.cases = [CaseResult(**case) for case in loaded["cases"]]
    booted = [engine.group for engine in record.engines]
    if twice := sorted({group for group in booted if booted.count(group) > 1}):
        raise HarnessError(
            f"{', '.join(twice)} booted more than once: pytest-xdist did not keep their cases together"
        )
    return _exit_code(status, record, options)


def _wait(cases: subprocess.Popen[bytes]) -> int:
    """The exit status of pytest; `INTERRUPTED` after ^C, once it has closed its engines."""
    try:
        return cases.wait()
    except KeyboardInterrupt:
        cases.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            cases.wait(CLOSING_SECONDS)
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


def _start_reference(run: Run) -> subprocess.Popen[bytes]:
    """The Hugging Face forward goes on beside the first boot; the cases wait for its file."""
    with (run.logs / "reference.log").open("wb") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "harness.reference", run.checkpoint),
                *(str(Path(run.work) / "prompts.json"), str(Path(run.work) / "reference.safetensors")),
            ],
            env={**run.variables, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
