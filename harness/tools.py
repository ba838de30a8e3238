"""What an environment needs beside vLLM for the suite to run there; the gate in one that nox did not make."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

from . import sources
from .errors import EnvironmentUnusableError, HarnessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

# By the module that is imported, the distribution that has it: this project's dependencies, and its extra `check`.
NEEDED = {
    "filelock": "filelock",
    "griffe": "griffelib",
    "jinja2": "jinja2",
    "packaging": "packaging",
    "rich": "rich",
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
    "xdist": "pytest-xdist",
    "syrupy": "syrupy",
    "safetensors": "safetensors",
}
# What a release's environment has beside these, as vLLM needs it too.
WITH_VLLM = ("numpy", "torch")
# Whatever else ends a command, it is ours.
FAULT = "this is a fault of the harness; please report it."
_LOOK = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))
"""


def require() -> None:
    """Find out before anything boots that the suite cannot run here.

    Raises:
        EnvironmentUnusableError: something is missing; the message says how to get it.
    """
    _refuse(sys.executable, [name for name in NEEDED if importlib.util.find_spec(name) is None])


def explained(error: Exception) -> tuple[str, int]:
    """What to say of an error that ends a command, and the exit code."""
    if isinstance(error, HarnessError):
        return str(error), error.exit_code
    if advice := _lacking(error):
        return advice, EnvironmentUnusableError.exit_code
    if isinstance(error, OSError):
        return f"{error}. Free some space, or make it writable, and run it again.", EnvironmentUnusableError.exit_code
    return FAULT, HarnessError.exit_code


def _lacking(error: BaseException) -> str | None:
    """What to do about a dependency of this project that could not be imported; None if that is not what failed."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name in NEEDED:
        how = f"Install this project there, {sys.executable} -m pip install '{_project()}[check]', or"
    elif name in WITH_VLLM:
        how = "It comes with vLLM:"
    else:
        return None
    return (
        f"{NEEDED.get(name, name)} is missing in {sys.executable}. {how} use an interpreter that has it, such as "
        "`harness environment RELEASE` prints."
    )


def preflight(arguments: Sequence[str]) -> NoReturn:
    """Become ``harness gate`` under another interpreter, into which nothing is installed.

    Args:
        arguments: ``--python PATH`` first, then those of ``harness gate``.

    Raises:
        UsageError: the interpreter is not named first, or cannot be run.
        EnvironmentUnusableError: something that the suite needs is missing there.
    """
    if len(arguments) < 2 or arguments[0] != "--python":  # noqa: PLR2004 - the option and its value.
        raise UsageError("name the interpreter first: nox -s preflight -- --python PATH [arguments of harness gate]")
    _option, python, *rest = arguments
    try:
        looked = subprocess.run(
            [python, "-c", _LOOK, *NEEDED], check=True, capture_output=True, text=True, timeout=60.0
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"--python {python} cannot be run: {error}. Give the path of an interpreter.") from error
    _refuse(python, json.loads(looked.stdout))
    path = os.pathsep.join(filter(None, [str(sources.PROJECT), os.environ.get("PYTHONPATH")]))
    sys.stdout.flush()
    os.execve(python, [python, "-m", "harness", "gate", *rest], {**os.environ, "PYTHONPATH": path})  # noqa: S606 - no shell.


def _refuse(python: str, missing: Sequence[str]) -> None:
    if missing:
        names = ", ".join(NEEDED[name] for name in missing)
        raise EnvironmentUnusableError(
            f"the suite cannot run in {python}: {names} {'are' if len(missing) > 1 else 'is'} missing there. "
            f"Install them: {python} -m pip install '{_project()}[check]'"
        )


def _project() -> str:
    """What pip installs this project from."""
    return str(sources.PROJECT) if (sources.PROJECT / "pyproject.toml").exists() else "vllm-capture-conformance"
