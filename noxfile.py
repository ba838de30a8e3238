# /// script
# dependencies = ["nox[uv]>=2026.1", "filelock>=3.16", "packaging>=24.0"]
# ///
"""Sessions: one a pinned vLLM release, and the project's own tests. Arguments after ``--`` reach ``harness check``.

nox makes the small environments; a release's environment is made by ``harness.environments``, so that ``harness``
itself can make it too, outside nox.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))

from harness import clients, environments, releases, tools
from harness.errors import HarnessError

nox.needs_version = ">=2026.1"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["tests", "lint"]
nox.options.reuse_venv = "yes"

# What CI and a developer run: the two that users' cards name, and the newest.
EVERYDAY = ("0.15.1", "0.16.0")
RELEASES = [release.version for release in releases.with_build("cpu")]
NEWEST = RELEASES[-1]
PIPELINES = [version for version in RELEASES if (Path(__file__).parent / "snapshots" / "mp-pp2" / version).is_dir()]
# After ^C the suite closes its engines and writes what it has; nox would kill it after half a second.
INTERRUPT_SECONDS = 90
# This project's, and the one that users copy.
WORKFLOWS = (".github/workflows", "docs/how-to/run-in-ci.yml")


def _environment(version: str, arguments: list[str], requirements: tuple[str, ...]) -> environments.Environment:
    """What arguments of ``harness check`` need: the build for a device, and what some clients have beside vLLM."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--client", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_known_args(arguments)[0]
    needed = (*requirements, *clients.requirements(asked.client))
    return environments.ensure(releases.find(version).build(asked.device), requirements=needed)


def _run(session: nox.Session, *command: str) -> None:
    """Run something that boots engines, and leave it the time to close them."""
    session.run(
        *command,
        external=True,
        interrupt_timeout=INTERRUPT_SECONDS,
        terminate_timeout=INTERRUPT_SECONDS,
        env={"PYTHONPATH": None, "PYTHONDONTWRITEBYTECODE": None},
    )


def _in_release(
    session: nox.Session, version: str, command: str, *arguments: str, requirements: tuple[str, ...] = ()
) -> None:
    """Run ``harness COMMAND`` in a release's environment, with these arguments and those after ``--``."""
    try:
        environment = _environment(version, session.posargs, requirements)
    except HarnessError as error:
        if version in RELEASES:
            session.error(str(error).rstrip("."))
        # Nothing else was asked for: the exit code of the harness is the answer.
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    _run(session, str(environment.python), "-m", "harness", command, *arguments, *session.posargs)


def _define(version: str) -> None:
    @nox.session(name=f"conformance-{version}", venv_backend="none", tags=["conformance"])
    def conformance_of_release(session: nox.Session) -> None:
        _in_release(session, version, "check")

    here = version in RELEASES
    conformance_of_release.__doc__ = f"The suite on vLLM {version}{'' if here else ': has no CPU build, says why'}."


for _release in releases.load():
    _define(_release.version)


@nox.session(venv_backend="none", requires=[f"conformance-{version}" for version in (*EVERYDAY, NEWEST)])
def conformance(session: nox.Session) -> None:
    """The suite on 0.15.1, 0.16.0 and the newest release with a CPU build."""


@nox.session(venv_backend="none")
def conformance_all(session: nox.Session) -> None:
    """The suite on every pinned release that does not conform yet; `-- --prune` makes room on a short disk."""
    _run(session, sys.executable, "-m", "harness", "check-all", *session.posargs)


@nox.session(venv_backend="none")
def pipeline_parallel(session: nox.Session) -> None:
    """Two pipeline stages, on every release whose replies under them are recorded."""
    for version in PIPELINES:
        record = f"results/{version}-cpu-mp-pp2/evidence.json"
        _in_release(session, version, "check", "--pipeline-parallel-size", "2", "--evidence", record)


@nox.session(venv_backend="none")
def ray(session: nox.Session) -> None:
    """Ray's workers, on the newest release; no CPU build can, and says why: `-- --device cuda`, on GPUs."""
    record = f"results/{NEWEST}-ray/evidence.json"
    _in_release(session, NEWEST, "check", "--executor-backend", "ray", "--evidence", record, requirements=("ray",))


@nox.session(venv_backend="none")
def faults(session: nox.Session) -> None:
    """Sound clients broken on purpose, on the newest with a CPU build: does the right case say so."""
    _in_release(session, NEWEST, "faults")


@nox.session(venv_backend="none")
def preflight(session: nox.Session) -> None:
    """`harness gate` in an environment that nox did not make: `-- --python PATH`, then its arguments."""
    try:
        tools.preflight(session.posargs)
    except HarnessError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Extraction beside the other ways, on the CPU and the newest release for it; `-- --rounds 9` for more of it."""
    python = environments.ensure(releases.find(NEWEST).build("cpu")).python
    _run(session, str(python), "-m", "bench.extraction", *(session.posargs or ["--rounds", "3"]))


@nox.session
def tests(session: nox.Session) -> None:
    """The harness's own tests: no vLLM, no torch."""
    project = nox.project.load_toml("pyproject.toml")
    session.install("-e", ".", *nox.project.dependency_groups(project, "tests"))
    session.run("pytest", *session.posargs)


@nox.session
def report_page(session: nox.Session) -> None:
    """The page of `harness report` in a headless Chromium, which has to be installed."""
    project = nox.project.load_toml("pyproject.toml")
    session.install("-e", ".", *nox.project.dependency_groups(project, "tests"))
    session.run("pytest", "tests/page_in_browser.py", *session.posargs)


@nox.session(venv_backend="none")
def extraction(session: nox.Session) -> None:
    """`harness extract` for real, on 0.16.0 and the newest with a CPU build; `-- VERSION` on one."""
    for version in session.posargs or (EVERYDAY[-1], NEWEST):
        requirements = clients.requirements(["speculators-0.3.0"])
        environment = environments.ensure(releases.find(version).build("cpu"), requirements=requirements)
        # Other people's warnings are not ours to turn into errors, and conftest.py needs what is not installed here.
        _run(
            session,
            *(str(environment.python), "-m", "pytest", "tests/extraction_on_vllm.py", "--noconftest", "-q", "-s"),
            *("-W", "default", "-o", "timeout=900", "-p", "no:cacheprovider"),
        )


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, its formatter, mypy in strict mode, and zizmor on the workflows."""
    project = nox.project.load_toml("pyproject.toml")
    session.install("-e", ".", *nox.project.dependency_groups(project, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("zizmor", "--offline", "--persona=pedantic", *WORKFLOWS)
