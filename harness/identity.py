"""What evidence is bound to: the distributions, the interpreter, the machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from . import adapters, capabilities, clients, hardware, releases, surface, variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .releases import Build


def environment() -> dict[str, Any]:
    """What evidence is bound to: the distributions, the interpreter, the machine.

    Raises:
        EnvironmentUnusableError: there is no usable vLLM here.
    """
    distribution, version = surface.installed_distribution()
    has = capabilities.installed()
    build = releases.of_distribution(distribution, version)
    return {
        "distribution": distribution,
        "version": version,
        "release": build.release if build else None,
        "record_sha256": _record_digest(distribution),
        "generation": adapters.generation(has),
        "capabilities": has.as_dict(),
        "packages": {name: _version(name) for name in ("torch", "transformers", "safetensors", "numpy")},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
    }


def build(facts: Mapping[str, Any]) -> Build | None:
    """The pinned build that the vLLM of these facts (`environment`) is, if it is one."""
    return releases.of_distribution(facts["distribution"], facts["version"])


def of_run(device: str, names: Iterable[str], builds: Mapping[str, str]) -> dict[str, Any]:
    """What evidence is bound to beside `environment`: devices, environment variables, and the code of the clients.

    Args:
        device: what the engines run on.
        names: the clients, as `clients.load` takes them.
        builds: the variables that the suite sets for the build at hand.

    Returns:
        ``{"devices", "variables", "clients"}``
    """
    return {
        "devices": hardware.describe(device),
        "variables": variables.bound(builds, os.environ),
        "clients": {name: client(name) for name in sorted(names)},
    }


def client(name: str) -> dict[str, Any]:
    """The code of one client: ``{"sha256", "distributions": {name: {"version", "record_sha256"}}}``.

    ``sha256`` is over its file or, in a package, over the Python files of all of it. A client that was installed
    by a distribution is bound to that one's RECORD, and so are the ones that it needs beside vLLM.
    """
    module = clients.IN_HOUSE.get(name, name).partition(":")[0]
    file = _file(module)
    needed = [Requirement(text).name for text in clients.requirements([name])]
    owners = _owners(module) if file is not None and {"site-packages", "dist-packages"} & set(file.parts) else []
    found = {each: _version(each) for each in dict.fromkeys([*needed, *owners])}
    return {
        "sha256": None if owners else _source_digest(module, file),
        "distributions": {
            each: {"version": version, "record_sha256": _record_digest(each) if version else None}
            for each, version in found.items()
        },
    }


def _file(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _owners(module: str) -> list[str]:
    top = module.partition(".")[0]
    return sorted(set(importlib.metadata.packages_distributions().get(top, [])))


def _source_digest(module: str, file: Path | None) -> str | None:
    top = _file(module.partition(".")[0])
    if file is None or top is None:
        return hashlib.sha256(file.read_bytes()).hexdigest() if file is not None else None
    files = sorted(top.parent.rglob("*.py")) if top.name == "__init__.py" else [file]
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(top.parent).as_posix()} ".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _record_digest(distribution: str) -> str | None:
    """SHA-256 of the distribution's RECORD, which lists a hash of every file that was installed."""
    record = importlib.metadata.distribution(distribution).read_text("RECORD")
    return hashlib.sha256(record.encode()).hexdigest() if record else None
