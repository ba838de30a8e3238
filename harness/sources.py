"""The suite's own files: where they are, and a digest that says whether they are the same."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from .errors import UsageError

_PACKAGE = Path(__file__).resolve().parent
PROJECT = _PACKAGE.parent
_CODE = (".py", ".toml")


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module of ours with this interpreter: this one, whatever the current folder holds.

    To be started with `python_variables`.
    """
    return sys.executable, "-P", "-m", module, *arguments


def python_variables() -> dict[str, str]:
    """This process's variables, with this package first among what Python finds, also where it isn't installed."""
    path = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def suite() -> Path:
    """The folder that holds ``cases`` and ``snapshots``: the project's, or the installed copy."""
    for folder in (_PACKAGE.parent, _PACKAGE / "suite"):
        if (folder / "cases" / "pytest.toml").exists():
            return folder
    raise UsageError(f"the cases are missing beside {_PACKAGE}: install the project again")


def digest(folder: Path, snapshots: str) -> str:
    """SHA-256 over what decides a run's outcome: the harness, the cases, and the snapshots that it is held to.

    Args:
        folder: what `suite()` says.
        snapshots: the folder of those, by name; it may be missing.
    """
    # An installed suite lies inside the package, and must not count twice.
    package = {path.relative_to(_PACKAGE): path for path in _PACKAGE.rglob("*") if path.suffix in _CODE}
    named = {name: path for name, path in package.items() if name.parts[0] != "suite"}
    kept = folder / "snapshots"
    # Beside the release's own, those of the settings that are opened only on request.
    beside = [*(folder / "cases").rglob("*"), *(kept / snapshots).glob("*.json"), *kept.glob(f"*/{snapshots}/*.json")]
    named |= {path.relative_to(folder): path for path in beside if path.suffix in (*_CODE, ".json")}
    total = hashlib.sha256()
    for name in sorted(named):
        total.update(f"{name.as_posix()} {hashlib.sha256(named[name].read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
