"""The suite's own files: where they are, and a digest that says whether they are the same."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

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


# The modules of the runners between which vLLM chooses on a GPU (0.11.0 to 0.33.0).
_RUNNERS = {"vllm.v1.worker.gpu_model_runner": "v1", "vllm.v1.worker.gpu.model_runner": "v2"}


def runners(folder: Path) -> dict[str, Path]:
    """The snapshots beside a run's own that are of one model runner: ``snapshots/<release>-<device>-v1``.

    That is where a run that chooses the runner for every engine keeps them (`options.model_runner`). A run that does
    not may have engines of both, and keeps those of the one that vLLM chooses for DeepseekV2.
    """
    beside = {runner: folder.with_name(f"{folder.name}-{name}") for runner, name in _RUNNERS.items()}
    return {runner: path for runner, path in beside.items() if path.is_dir()}


def of_runner(folder: Path, runner: Callable[[], str]) -> Path:
    """Those of them that an engine is held to whose record is another's; the run's own if there are none for it.

    Args:
        folder: the run's snapshots.
        runner: gives the class, as ``harness_identity`` names it; asked only where that makes a difference.
    """
    beside = runners(folder)
    return beside.get(runner().rpartition(".")[0], folder) if beside else folder


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
    # Beside the release's own, those of the settings that are opened only on request, and of single model runners.
    held = [kept / snapshots, *kept.glob(f"*/{snapshots}"), *runners(kept / snapshots).values()]
    beside = [*(folder / "cases").rglob("*"), *(path for place in held for path in place.glob("*.json"))]
    named |= {path.relative_to(folder): path for path in beside if path.suffix in (*_CODE, ".json")}
    total = hashlib.sha256()
    for name in sorted(named):
        total.update(f"{name.as_posix()} {hashlib.sha256(named[name].read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
