"""The surface of a release that need not be installed: read once from its wheel, then from a cache."""

from __future__ import annotations

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

from . import diff, environments, processes, surface, uv, watched, web
from .entries import Entry
from .errors import EnvironmentUnusableError, UsageError
from .writing import write_whole

if TYPE_CHECKING:
    from .diff import Change
    from .releases import Build, Release
    from .surface import Surface


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
    recorded = diff.recorded(*(diff.snapshots(snapshots / build.release) for build in (before, after)))
    found = [*diff.compare(surface_of(before), surface_of(after)), *recorded]
    return sorted(found, key=lambda change: diff.KINDS.index(change.kind))


def surface_of(build: Build) -> Surface:
    """The surface of a build.

    Raises:
        EnvironmentUnusableError: the wheel cannot be had.
        UsageError: the cache cannot be written.
    """
    at_hand = surface_at_hand(build)
    if at_hand is not None:
        return at_hand
    return _store(build, _from_wheel(build) if build.url is None else _from_web(build.url))


def surface_at_hand(build: Build) -> Surface | None:
    """The surface of a build if it can be had without a network: from the cache, or from its environment.

    Raises:
        UsageError: the cache cannot be written.
    """
    stored = _stored(build)
    if stored is not None:
        return stored
    found = _installed(build)
    return _store(build, found) if found else None


def _file(build: Build) -> Path:
    return cache() / "surfaces" / f"{build.distribution}-{build.version}-{_reader()}.json"


def _stored(build: Build) -> Surface | None:
    lists = ("parameters", "also")
    try:
        rows = json.loads(_file(build).read_text(encoding="utf-8"))
        return {row["name"]: Entry(**row | {key: tuple(row[key]) for key in lists}) for row in rows}
    except (OSError, ValueError, TypeError, KeyError):  # Missing or torn: read again.
        return None


def _store(build: Build, found: Surface) -> Surface:
    path = _file(build)
    try:
        write_whole(path, json.dumps([asdict(entry) for entry in found.values()]))
    except OSError as error:
        raise UsageError(
            f"{path.parent} cannot be written: {error.strerror}. Set HARNESS_CACHE to another."
        ) from error
    return found


def _reader() -> str:
    """What is looked at, and how, as part of a key: another reader makes new files, not wrong ones."""
    code = b"".join(Path(__file__).with_name(name).read_bytes() for name in ("entries.py", "surface.py"))
    looked_at = repr((watched.WATCHED, watched.REQUIREMENTS)).encode()
    return hashlib.sha256(looked_at + code).hexdigest()[:12]


def _read(root: Path) -> Surface:
    return {**surface.read(root), **surface.package(root)}


def _installed(build: Build) -> Surface | None:
    """From the build's environment, if that was whole before and after: what is kept is never read again."""
    environment = environments.existing(build)
    if environment is None:
        return None
    try:
        (package,) = environment.path.glob("lib/python*/site-packages/vllm")
        found = _read(package)
    except (OSError, ValueError, SyntaxError):  # Files are gone, or cut short: its wheel has them all.
        return None
    return found if environments.existing(build) else None


def _from_wheel(build: Build) -> Surface:
    print(f"reading {build.requirement} from its wheel", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="harness-wheel-") as folder:
        command = [uv.executable(), "pip", "install", "--quiet", "--no-deps", "--target", folder]
        done = subprocess.run(
            [*command, "--python", sys.executable, "--link-mode", "hardlink", build.requirement],
            env=processes.child_variables(),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            raise EnvironmentUnusableError(uv.explain_failure(build.requirement, done.stderr))
        return _read(Path(folder) / "vllm")


def _from_web(url: str) -> Surface:
    """From the modules that are looked at, out of a wheel that stays where it is."""
    print(f"reading {url.rpartition('/')[2].partition('#')[0]}", file=sys.stderr, flush=True)
    modules = [name.replace(".", "/") for name in watched.modules()]
    wanted = {f"vllm/{module}{end}" for module in modules for end in (".py", "/__init__.py")}
    with tempfile.TemporaryDirectory(prefix="harness-wheel-") as folder, web.open_wheel(urldefrag(url).url) as wheel:
        names = wheel.namelist()
        metadata = [name for name in names if name.endswith(".dist-info/METADATA")]
        wheel.extractall(folder, members=[*sorted(wanted & set(names)), *metadata])
        try:
            return _read(Path(folder) / "vllm")
        except (ValueError, SyntaxError) as error:
            raise EnvironmentUnusableError(f"{url} holds what is no Python: {error}. Give another build.") from error
