"""What is a file or a folder here: a requirement, as against one of an index or the web; and what it holds."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement

# A path, and behind it what may be behind a requirement: extras, a marker.
_PATH = re.compile(r"(?P<path>[^\[;]+?)(?P<rest>\s*(?:\[[^\]]*\])?\s*(?:;.*)?)")

# uv takes a word that ends so for a file, though it may be a name.
_ARCHIVES = (".whl", ".tar.gz", ".zip")

# What decides how a program runs, as against what it leaves: a folder may hold our own results.
_CODE = (".py", ".pyi", ".sh", ".toml", ".cfg", ".ini")
_BIG = 2**24


def path(requirement: str) -> Path | None:
    """The file or folder that a requirement is, absolute; None for what is not local."""
    target = _target(requirement)
    if target is None:
        return None
    address = urlsplit(target)
    if address.scheme == "file":
        return Path(unquote(address.path)).resolve()
    return None if address.scheme else Path(target).resolve()


def pinned(requirement: str) -> str:
    """The same requirement from whichever folder it is read: with a local path absolute."""
    place, target = path(requirement), _target(requirement)
    if place is None or target is None or urlsplit(target).scheme:
        return requirement
    before, _, after = requirement.partition(target)
    return f"{before}{place}{after}"


def slug(requirement: str) -> str:
    """A requirement as a part of a folder's name; of a path its last part, and a digest that tells it from others."""
    place = path(requirement)
    if place is None:
        return _plain(requirement)
    return f"{_plain(place.name)}-{hashlib.sha256(pinned(requirement).encode()).hexdigest()[:8]}"


def state(place: Path) -> str:
    """A digest of what a file holds, or the code below a folder; of a big file, of its size and when it was written.

    Hidden folders do not count, and what cannot be read is as if it were not there.
    """
    total = hashlib.sha256()
    for file in _files(place):
        try:
            facts = file.stat()
            big = facts.st_size > _BIG
            held = f"{facts.st_size} {facts.st_mtime_ns}".encode() if big else file.read_bytes()
        except OSError:
            continue
        total.update(f"{file.relative_to(place)} {hashlib.sha256(held).hexdigest()}\n".encode())
    return total.hexdigest()


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place] if place.is_file() else []
    found = []
    for folder, below, names in os.walk(place):
        below[:] = [name for name in below if not name.startswith((".", "__pycache__"))]
        found += [Path(folder, name) for name in names if name.endswith(_CODE)]
    return sorted(found)


def _plain(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-")


def _target(requirement: str) -> str | None:
    """The path or address that a requirement gives; None if it gives a name alone."""
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        found = _PATH.fullmatch(requirement.strip())
        return found["path"] if found else None
    return parsed.name if parsed.name.endswith(_ARCHIVES) else parsed.url
