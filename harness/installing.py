"""What a release's environment is made of, in which order, and the first import."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from . import processes, releases, sources, uv
from .errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .releases import Build

# What a failed import says is more use than a traceback in the first engine; importing also compiles
# the bytecode that every later process of this environment starts from.
_IMPORTS = "import torch, transformers, vllm; from vllm import LLM; import vllm.v1.engine.core"


def install(build: Build, path: Path, requirements: Sequence[str]) -> None:
    """Make an environment anew, whatever was there.

    Raises:
        EnvironmentUnusableError: it could not be made; the message names the package and what to try.
    """
    print(f"making the environment of {build.requirement} in {path}", file=sys.stderr, flush=True)
    uv.run(build.requirement, "venv", "--quiet", "--clear", "--python", sys.executable, str(path))
    torch, flags = _torch_source(build)
    overrides = path / "overrides.txt"
    lines = [override.requirement for override in build.overrides]
    lines[0] = torch
    overrides.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tools = releases.tools()
    added = [name for requirement in requirements if (name := _name(requirement))]
    uv.run(
        build.requirement,
        *("pip", "install", "--python", str(path / "bin" / "python"), "--link-mode", "hardlink"),
        *("--overrides", str(overrides), "--exclude-newer", build.cutoff),
        *(f"--exclude-newer-package={package}={tools.cutoff}" for package in (*tools.packages, *added)),
        *flags,
        build.requirement,
        *requirements,
        *("--editable", f"{sources.PROJECT}[check]"),
    )
    print("importing it once, which compiles its bytecode", file=sys.stderr, flush=True)
    variables = {**processes.child_variables(), **build.environment}
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


def point_here(build: Build, path: Path) -> None:
    """Have an environment that another checkout of this project made import this one.

    Raises:
        EnvironmentUnusableError: it cannot be installed.
    """
    uv.run(
        build.requirement,
        *("pip", "install", "--quiet", "--python", str(path / "bin" / "python"), "--no-deps"),
        *("--editable", str(sources.PROJECT)),
    )


def renew(build: Build, path: Path, requirements: Sequence[str]) -> None:
    """Have an environment hold what files and folders are now: they may have been edited since.

    Raises:
        EnvironmentUnusableError: they cannot be installed.
    """
    uv.run(
        build.requirement,
        *("pip", "install", "--quiet", "--python", str(path / "bin" / "python"), "--no-deps", "--reinstall"),
        *requirements,
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
            [uv.executable(), "pip", "compile", "--quiet", "--no-deps", "--python", sys.executable, *flags, "-"],
            input=local,
            env={**processes.child_variables(), "UV_HTTP_RETRIES": "0"},
            check=False,
            capture_output=True,
            text=True,
        )
        if found.returncode == 0:
            return local, flags
    return f"torch=={build.torch}", links
