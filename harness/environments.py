"""A release's environment, made with uv, and reused while nothing about it has changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
from packaging.version import Version

from . import installing, local, releases, sources
from .errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .releases import Build

MARKER = "harness-environment.json"


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
    return Path(given) if given else sources.PROJECT / ".nox" / "releases"


def fingerprint(build: Build, requirements: Sequence[str]) -> str:
    """What an environment was made from: equal digests mean that it can be used as it is."""
    project = tomllib.loads((sources.PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
        name += "-with-" + "-".join(local.slug(requirement) for requirement in sorted(requirements))
    return name


def ensure(build: Build, *, name: str | None = None, requirements: Sequence[str] = ()) -> Environment:
    """The environment of a build, made now if it is missing or out of date.

    Args:
        build: what to install.
        name: the folder below `root()`; `folder_name` if not given.
        requirements: further requirements, resolved together with vLLM. Their own newest or named versions are
            taken, whenever they were published; what they depend on is as old as the release. One that is a file
            or a folder here is installed each time, as it is by then; its dependencies are those of the first time.

    Raises:
        EnvironmentUnusableError: it could not be made; the message names the package and what to try.
    """
    if platform.python_version() not in build.python:
        raise EnvironmentUnusableError(
            f"{build.requirement} needs Python {build.python}, and this is {platform.python_version()}. "
            f"Run nox or harness with a Python in that range."
        )
    libc = platform.libc_ver()[1]
    if build.glibc is not None and Version(libc or "0") < Version(build.glibc):
        raise EnvironmentUnusableError(
            f"{build.requirement} needs glibc {build.glibc}, and this machine has {libc or 'another C library'}. "
            f"Run it on a newer system (Debian 13, Ubuntu 24.04), or use a neighbouring release."
        )
    requirements = [local.pinned(requirement) for requirement in requirements]
    path = root() / (name or folder_name(build, requirements))
    start = time.monotonic()
    marker = {"fingerprint": fingerprint(build, requirements), "checkout": str(sources.PROJECT)}
    with _locked(path):
        made = _marker(path)
        missing = made.get("fingerprint") != marker["fingerprint"]
        if missing:
            (path / MARKER).unlink(missing_ok=True)  # First: whatever ends this early, nobody takes it for whole.
            installing.install(build, path, requirements)
        elif made != marker:
            installing.point_here(build, path)
        if made != marker:
            (path / MARKER).write_text(json.dumps(marker), encoding="utf-8")
        if here := [requirement for requirement in requirements if local.path(requirement)]:
            installing.renew(build, path, here)
    return Environment(build=build, path=path, created=missing, seconds=time.monotonic() - start)


def existing(build: Build) -> Environment | None:
    """The environment of a build if it is there and would be reused."""
    path = root() / folder_name(build, ())
    if _marker(path).get("fingerprint") != fingerprint(build, ()):
        return None
    return Environment(build=build, path=path, created=False, seconds=0.0)


def remove(build: Build) -> None:
    """Remove the environment of a build, if there is one. What uv's cache holds of it stays: see `uv.prune`.

    Raises:
        EnvironmentUnusableError: it cannot be removed.
    """
    path = root() / folder_name(build, ())
    with _locked(path):
        if path.exists():
            (path / MARKER).unlink(missing_ok=True)  # First, as above.
            shutil.rmtree(path)


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


def _marker(path: Path) -> dict[str, str]:
    """What an environment was made from, and the checkout that it imports; empty if it is not whole."""
    try:
        marker: dict[str, str] = json.loads((path / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return marker if (path / "bin" / "python").exists() else {}
