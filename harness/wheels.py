"""The surface of a release that need not be installed: read once from its wheel, then from a cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urldefrag

from . import diff, environments, surface, web
from .errors import EnvironmentUnusableError, UsageError
from .surface import Entry, Surface

if TYPE_CHECKING:
    from .diff import Change
    from .releases import Build, Release


def cache() -> Path:
    """``$HARNESS_CACHE``, else below the user's cache folder."""
    given = os.environ.get("HARNESS_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else home / "vllm-capture-conformance"


def any_build(release: Release) -> Build:
    """The one to read a release's surface from, the CPU's if it has one: the Python files are the same."""
    return release.builds.get("cpu") or release.builds["cuda"]


def changes(before: Build, after: Build, snapshots: Path) -> list[Change]:
    """What changed between two builds: their surfaces, and what ``snapshots`` holds of them, worst first."""
    recorded = diff.recorded(snapshots / before.release, snapshots / after.release)
    found = [*diff.compare(surface_of(before), surface_of(after)), *recorded]
    return sorted(found, key=lambda change: diff.KINDS.index(change.kind))


def surface_of(build: Build) -> Surface:
    """The surface of a build.

    Raises:
        EnvironmentUnusableError: the wheel cannot be had.
        UsageError: the cache cannot be written.
    """
    # What is looked at is part of the key: a longer list makes new files, not wrong ones.
    watched = hashlib.sha256(repr(surface.WATCHED).encode()).hexdigest()[:12]
    path = cache() / "surfaces" / f"{build.distribution}-{build.version}-{watched}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # Missing or torn: read again.
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {row["name"]: Entry(**{**row, "parameters": tuple(row["parameters"])}) for row in rows}
    found = _installed(build) or (_from_wheel(build) if build.url is None else _from_web(build.url))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps([asdict(entry) for entry in found.values()]), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path.parent} cannot be written: {error.strerror}. Set HARNESS_CACHE to another."
        ) from error
    return found


def _installed(build: Build) -> Surface | None:
    """From the release's environment, if there is one."""
    folders = sorted((environments.root() / build.release).glob("lib/python*/site-packages/vllm"))
    return surface.read(folders[0]) if folders else None


def _from_wheel(build: Build) -> Surface:
    print(f"reading {build.requirement} from its wheel", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="harness-wheel-") as folder:
        command = [environments.uv(), "pip", "install", "--quiet", "--no-deps", "--target", folder]
        done = subprocess.run(
            [*command, "--python", sys.executable, "--link-mode", "hardlink", build.requirement],
            env=environments.child_variables(),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            raise EnvironmentUnusableError(environments.explain_failure(build.requirement, done.stderr))
        return surface.read(Path(folder) / "vllm")


def _from_web(url: str) -> Surface:
    """From the modules that are looked at, out of a wheel that stays where it is."""
    print(f"reading {url.rpartition('/')[2].partition('#')[0]}", file=sys.stderr, flush=True)
    modules = {place.partition(":")[0].replace(".", "/") for places, _members in surface.WATCHED for place in places}
    wanted = {f"vllm/{module}{end}" for module in modules for end in (".py", "/__init__.py")}
    with tempfile.TemporaryDirectory(prefix="harness-wheel-") as folder, web.open_wheel(urldefrag(url).url) as wheel:
        wheel.extractall(folder, members=sorted(wanted & set(wheel.namelist())))
        return surface.read(Path(folder) / "vllm")
