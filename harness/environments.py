"""A release's environment, made with uv, and reused while nothing about it has changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from . import releases
from .errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .releases import Build

MARKER = "harness-environment.json"
PROJECT = Path(__file__).resolve().parent.parent

# What a failed import says is more use than a traceback in the first engine; importing also compiles
# the bytecode that every later process of this environment starts from.
_IMPORTS = "import torch, transformers, vllm; from vllm import LLM; import vllm.v1.engine.core"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment that exists and imports."""

    build: Build
    path: Path
    created: bool
    seconds: float

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"


def root() -> Path:
    """Where environments are kept: ``$HARNESS_ENVIRONMENTS``, else beside the project's nox environments."""
    given = os.environ.get("HARNESS_ENVIRONMENTS")
    return Path(given) if given else PROJECT / ".nox" / "releases"


def uv() -> str:
    """The uv to use.

    Raises:
        EnvironmentUnusableError: there is none.
    """
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise EnvironmentUnusableError("uv was not found. Install it: python -m pip install uv")
    return found


def child_variables() -> dict[str, str]:
    """The variables for a process of another environment: nothing that ties it to this one."""
    dropped = {"VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    return {key: value for key, value in os.environ.items() if key not in dropped}


def fingerprint(build: Build, requirements: Sequence[str]) -> str:
    """What an environment was made from: equal digests mean that it can be used as it is."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = {
        "requirement": build.requirement,
        "torch": build.torch,
        "cutoff": build.cutoff,
        "overrides": [override.requirement for override in build.overrides],
        "tools": [releases.tools().cutoff, *releases.tools().packages],
        "project": {key: project[key] for key in ("dependencies", "optional-dependencies", "scripts")},
        "requirements": sorted(requirements),
        "python": platform.python_version(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def folder_name(build: Build, requirements: Sequence[str]) -> str:
    """The release's version; what holds more than the release stands apart, so that neither is made over."""
    name = build.release if build.device == "cpu" else f"{build.release}-{build.device}"
    if requirements:
        name += "-with-" + "-".join(
            re.sub(r"[^\w.]+", "-", requirement).strip("-") for requirement in sorted(requirements)
        )
    return name


def ensure(build: Build, *, name: str | None = None, requirements: Sequence[str] = ()) -> Environment:
    """The environment of a build, made now if it is missing or out of date.

    Args:
        build: what to install.
        name: the folder below `root()`; `folder_name` if not given.
        requirements: further requirements, resolved together with vLLM. Their own newest or named versions are
            taken, whenever they were published; what they depend on is as old as the release.

    Raises:
        EnvironmentUnusableError: it could not be made; the message names the package and what to try.
    """
    if platform.python_version() not in build.python:
        raise EnvironmentUnusableError(
            f"{build.requirement} needs Python {build.python}, and this is {platform.python_version()}. "
            f"Run nox or harness with a Python in that range."
        )
    here = platform.libc_ver()[1]
    if build.glibc is not None and Version(here or "0") < Version(build.glibc):
        raise EnvironmentUnusableError(
            f"{build.requirement} needs glibc {build.glibc}, and this machine has {here or 'another C library'}. "
            f"Run it on a newer system (Debian 13, Ubuntu 24.04), or use a neighbouring release."
        )
    path = root() / (name or folder_name(build, requirements))
    wanted = fingerprint(build, requirements)
    start = time.monotonic()
    with _locked(path):
        if _made_from(path) == wanted:
            return Environment(build=build, path=path, created=False, seconds=time.monotonic() - start)
        _make(build, path, requirements)
        (path / MARKER).write_text(json.dumps({"fingerprint": wanted}), encoding="utf-8")
    return Environment(build=build, path=path, created=True, seconds=time.monotonic() - start)


def existing(build: Build) -> Environment | None:
    """The environment of a build if it is there and would be reused."""
    path = root() / folder_name(build, ())
    if _made_from(path) != fingerprint(build, ()):
        return None
    return Environment(build=build, path=path, created=False, seconds=0.0)


def remove(build: Build) -> None:
    """Remove the environment of a build, if there is one. What uv's cache holds of it stays: see `clear_cache`.

    Raises:
        EnvironmentUnusableError: it cannot be removed.
    """
    path = root() / folder_name(build, ())
    with _locked(path):
        if path.exists():
            shutil.rmtree(path)


def clear_cache() -> None:
    """Drop the wheels that uv unpacked: environments share their files with it, so that removing one frees little."""
    subprocess.run([uv(), "cache", "prune", "--quiet", "--ci"], env=child_variables(), check=False)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.parent / f".{path.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(lock, timeout=3600):
            yield
    except filelock.Timeout as error:
        raise EnvironmentUnusableError(
            f"another process has been making {path} for an hour. End it, or remove {lock}."
        ) from error
    except OSError as error:  # Read-only, full, a file where a folder should be: the same to whoever asked.
        raise EnvironmentUnusableError(
            f"environments cannot be written to {path.parent}: {error.strerror}. "
            f"Set HARNESS_ENVIRONMENTS to a folder that can be written."
        ) from error


def _made_from(path: Path) -> str | None:
    try:
        marker = json.loads((path / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return marker.get("fingerprint") if (path / "bin" / "python").exists() else None


def _make(build: Build, path: Path, requirements: Sequence[str]) -> None:
    print(f"making the environment of {build.requirement} in {path}", file=sys.stderr, flush=True)
    _uv(build, "venv", "--quiet", "--clear", "--python", sys.executable, str(path))
    torch, flags = _torch_source(build)
    overrides = path / "overrides.txt"
    lines = [override.requirement for override in build.overrides]
    lines[0] = torch
    overrides.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tools = releases.tools()
    added = [name for requirement in requirements if (name := _name(requirement))]
    _uv(
        build,
        *("pip", "install", "--python", str(path / "bin" / "python"), "--link-mode", "hardlink"),
        *("--overrides", str(overrides), "--exclude-newer", build.cutoff),
        *(f"--exclude-newer-package={package}={tools.cutoff}" for package in (*tools.packages, *added)),
        *flags,
        build.requirement,
        *requirements,
        *("--editable", f"{PROJECT}[check]"),
    )
    print("importing it once, which compiles its bytecode", file=sys.stderr, flush=True)
    variables = {**child_variables(), **build.environment}
    done = subprocess.run(
        [str(path / "bin" / "python"), "-c", _IMPORTS],
        env=variables,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise EnvironmentUnusableError(
            f"{build.requirement} was installed but cannot be imported:\n{tail}\n"
            f"Remove {path} and try again; if it stays, the row in harness/releases.toml needs an override."
        )


def _name(requirement: str) -> str | None:
    """The package that a requirement names; None for a path or an address, which no date applies to."""
    try:
        return Requirement(requirement).name
    except InvalidRequirement:
        return None


def _torch_source(build: Build) -> tuple[str, list[str]]:
    """The torch requirement, and the flags for uv to find it.

    The CPU build is a tenth of the size, but PyPI does not have it: take it where an index offers it.
    """
    links = [flag for link in os.environ.get("PIP_FIND_LINKS", "").split() for flag in ("--find-links", link)]
    if build.device == "cuda":
        return f"torch=={build.torch}", links
    local = f"torch=={build.torch}+cpu"
    for flags in (links, [*links, "--torch-backend", "cpu"]):
        found = subprocess.run(
            [uv(), "pip", "compile", "--quiet", "--no-deps", "--python", sys.executable, *flags, "-"],
            input=local,
            env={**child_variables(), "UV_HTTP_RETRIES": "0"},
            check=False,
            capture_output=True,
            text=True,
        )
        if found.returncode == 0:
            return local, flags
    return f"torch=={build.torch}", links


def _uv(build: Build, *arguments: str) -> None:
    variables = {**child_variables(), "UV_HTTP_TIMEOUT": os.environ.get("UV_HTTP_TIMEOUT", "300")}
    said: list[str] = []
    with subprocess.Popen([uv(), *arguments], env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said.append(line)
                sys.stderr.write(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise EnvironmentUnusableError(explain_failure(build.requirement, "".join(said)))


_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"No space left on device|os error 28",
        "the disk is full. Free some space: `uv cache prune`, or remove environments you no longer need",
    ),
    (
        r"Because (?P<package>[\w.-]+)\S* has no wheels with a matching",
        "{package} has no wheel for this Python or platform. Use another Python, or add an override",
    ),
    (
        r"there is no version of (?P<package>[\w.-]+)",
        "no index that uv reads has that version of {package}. Check the version and the cut-off date",
    ),
    (
        r"(?P<package>[\w.-]+) was not found in the package registry",
        "{package} is on no index that uv reads. Check its name, or set UV_INDEX_URL or PIP_FIND_LINKS",
    ),
    (
        r"Failed to (?:download|fetch)[^`]*`(?P<package>[^`]+)`",
        "{package} could not be downloaded. Check the network and run it again: what is done is kept",
    ),
    (
        r"Failed to build `?(?P<package>[\w.-]+)",
        "{package} has no wheel here and did not build. Add an override for a version that has one",
    ),
    (
        r"error sending request|dns error|Connect|timed out",
        "the package index cannot be reached. Check the network, then run it again",
    ),
    (
        r"Because (?P<package>[\w.-]+)[^\n]*depends on",
        "{package} cannot be resolved together with the rest. Add an override",
    ),
)


def explain_failure(requirement: str, said: str) -> str:
    """The package that an install failed on, and what to try, from what uv said."""
    for pattern, advice in _CAUSES:
        if match := re.search(pattern, said):
            text = advice.format(**match.groupdict())
            return f"{requirement} could not be installed: {text} (uv's own words are above)."
    return f"{requirement} could not be installed; uv's own words are above."
