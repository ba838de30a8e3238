"""A requirement that is a file or a folder here, as against one of an index or the web."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement

# A path, and behind it what may be behind a requirement: extras, a marker.
_PATH = re.compile(r"(?P<path>[^\[;]+?)(?P<rest>\s*(?:\[[^\]]*\])?\s*(?:;.*)?)")

# uv takes a word that ends so for a file, though it may be a name.
_ARCHIVES = (".whl", ".tar.gz", ".zip")


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
