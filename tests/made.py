"""Environments of pinned releases that look made, so that nothing makes them: an interpreter, and a vLLM to read."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from conftest import TESTS

from harness import environments, releases, sources

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# A row of releases that any Python of ours can have.
ROW = ("0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.27.1")
REQUEST = "class Request:\n    def __init__(self, request_id: str, {eos}priority: int = 0) -> None: ...\n"


def environment(root: Path, version: str, *, eos: bool, interpreter: str = "exit 0") -> Path:
    """One environment.

    Args:
        root: the folder of all.
        version: a pinned release.
        eos: whether its `Request` takes ``eos_token_id``.
        interpreter: what its ``python`` does, as lines of a shell.
    """
    path = root / version
    package = path / "lib" / "python3.11" / "site-packages" / "vllm" / "v1"
    package.mkdir(parents=True)
    (package / "request.py").write_text(REQUEST.format(eos="eos_token_id: int | None, " if eos else ""))
    (path / "bin").mkdir()
    (path / "bin" / "python").write_text(f"#!/bin/sh\n{interpreter}\n", encoding="utf-8")
    (path / "bin" / "python").chmod(0o755)
    made_from = environments.fingerprint(releases.find(version).build("cpu"), ())
    marker = {"fingerprint": made_from, "checkout": str(sources.PROJECT)}
    (path / environments.MARKER).write_text(json.dumps(marker), encoding="utf-8")
    return path


def row(root: Path, *, first_without: str, versions: Iterable[str] = ROW) -> None:
    """Environments of a row; from one on, ``eos_token_id`` is gone."""
    gone = False
    check = f'exec {sys.executable} {TESTS / "fake_check.py"} "$0" "$@"'
    for version in versions:
        gone = gone or version == first_without
        environment(root, version, eos=not gone, interpreter=check)
