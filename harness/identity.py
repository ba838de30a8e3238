"""What evidence is bound to: the distributions, the interpreter, the machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from typing import Any

from . import adapters, capabilities, releases, surface


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


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _record_digest(distribution: str) -> str | None:
    """SHA-256 of the distribution's RECORD, which lists a hash of every file that was installed."""
    record = importlib.metadata.distribution(distribution).read_text("RECORD")
    return hashlib.sha256(record.encode()).hexdigest() if record else None
