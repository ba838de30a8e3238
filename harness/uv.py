"""uv: where it is, running it, and what a failed install means."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import processes
from .errors import EnvironmentUnusableError

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


def executable() -> str:
    """The uv to use.

    Raises:
        EnvironmentUnusableError: there is none.
    """
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise EnvironmentUnusableError("uv was not found. Install it: python -m pip install uv")
    return found


def run(requirement: str, *arguments: str) -> None:
    """Run uv for what is to be installed; what it says is passed on.

    Raises:
        EnvironmentUnusableError: it failed; the message names the package and what to try.
    """
    variables = {**processes.child_variables(), "UV_HTTP_TIMEOUT": os.environ.get("UV_HTTP_TIMEOUT", "300")}
    said: list[str] = []
    with subprocess.Popen([executable(), *arguments], env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said.append(line)
                sys.stderr.write(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise EnvironmentUnusableError(explain_failure(requirement, "".join(said)))


def explain_failure(requirement: str, said: str) -> str:
    """The package that an install failed on, and what to try, from what uv said."""
    for pattern, advice in _CAUSES:
        if match := re.search(pattern, said):
            text = advice.format(**match.groupdict())
            return f"{requirement} could not be installed: {text} (uv's own words are above)."
    return f"{requirement} could not be installed; uv's own words are above."


def prune() -> None:
    """Drop the wheels that uv unpacked: environments share their files with it, so that removing one frees little."""
    subprocess.run([executable(), "cache", "prune", "--quiet", "--ci"], env=processes.child_variables(), check=False)
