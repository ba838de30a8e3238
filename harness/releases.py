"""The pinned vLLM releases, read from ``releases.toml``."""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from .errors import EnvironmentUnusableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Device: TypeAlias = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Override:
    """A requirement that replaces what a wheel's metadata asks for."""

    requirement: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Repair:
    """How the suite goes on past a fault of a build, so that the rest can be checked.

    One engine always runs without it, and the known faults say what must fail there.
    """

    why: str
    engine_arguments: Mapping[str, Any]
    extension: str


@dataclass(frozen=True, kw_only=True)
class Build:
    """One release as it is installed for one kind of device; from ``url`` if it is on no index that uv reads."""

    release: str
    device: Device
    distribution: str
    version: str
    torch: str
    cutoff: str
    python: SpecifierSet
    overrides: tuple[Override, ...]
    environment: Mapping[str, str]
    glibc: str | None
    block_size: int
    repair: Repair | None
    url: str | None = None

    @property
    def requirement(self) -> str:
        return f"{self.distribution} @ {self.url}" if self.url else f"{self.distribution}=={self.version}"


@dataclass(frozen=True, kw_only=True)
class Release:
    """One pinned vLLM."""

    version: str
    builds: Mapping[Device, Build]
    missing: Mapping[Device, str]

    def build(self, device: Device) -> Build:
        """How to install this release.

        Raises:
            EnvironmentUnusableError: there is no build for the device; the row's reason is in the message.
        """
        try:
            return self.builds[device]
        except KeyError:
            raise EnvironmentUnusableError(
                f"vLLM {self.version} has no {device} build: {self.missing[device]}. "
                f"Choose another release: `harness releases` lists them."
            ) from None


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The suite's own tools, resolved as of one day for every release."""

    cutoff: str
    packages: tuple[str, ...]


def _overrides(torch: str, drop: list[dict[str, str]], extra: list[dict[str, str]]) -> tuple[Override, ...]:
    never = "python_version < '3'"
    return (
        Override(requirement=f"torch=={torch}", why="the release's torch, from whichever index has it"),
        *(Override(requirement=f"{row['package']} ; {never}", why=row["why"]) for row in drop),
        *(Override(requirement=row["requirement"], why=row["why"]) for row in extra),
    )


def _repair(row: dict[str, Any]) -> Repair:
    return Repair(
        why=row["why"],
        engine_arguments=row.get("engine_arguments", {}),
        extension=row.get("extension", ""),
    )


def _parse(row: dict[str, Any], defaults: dict[str, Any]) -> Release:
    builds: dict[Device, Build] = {}
    missing: dict[Device, str] = {}
    devices: tuple[Device, ...] = ("cpu", "cuda")
    for device in devices:
        entry = row[device]
        if "missing" in entry:
            missing[device] = entry["missing"]
            continue
        builds[device] = Build(
            release=row["version"],
            device=device,
            distribution=entry["distribution"],
            version=entry["version"],
            torch=row["torch"],
            cutoff=entry["cutoff"],
            python=SpecifierSet(row["python"]),
            overrides=_overrides(
                row["torch"],
                [*defaults[device]["drop"], *entry.get("drop", [])],
                entry.get("overrides", []),
            ),
            environment={
                **defaults["environment"],
                **defaults[device]["environment"],
                **entry.get("environment", {}),
            },
            glibc=entry.get("glibc"),
            block_size=entry.get("block_size", defaults[device]["block_size"]),
            repair=_repair(entry["repair"]) if "repair" in entry else None,
        )
    return Release(version=row["version"], builds=builds, missing=missing)


@functools.cache
def _document() -> dict[str, Any]:
    text = importlib.resources.files(__package__).joinpath("releases.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@functools.cache
def load() -> tuple[Release, ...]:
    """All pinned releases, oldest first."""
    document = _document()
    rows = [_parse(row, document["defaults"]) for row in document["release"]]
    return tuple(sorted(rows, key=lambda release: Version(release.version)))


def tools() -> Tools:
    """What the suite itself is made of, with the day its versions are resolved for."""
    table = _document()["tools"]
    return Tools(cutoff=table["cutoff"], packages=tuple(table["packages"]))


def find(version: str) -> Release:
    """The row of one release.

    Raises:
        UsageError: no such row.
    """
    known = {release.version: release for release in load()}
    try:
        return known[version]
    except KeyError:
        series = [name for name in known if name.split(".")[:2] == version.split(".")[:2]]
        close = series or difflib.get_close_matches(version, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`harness releases` lists the pinned ones."
        raise UsageError(
            f"vLLM {version} is not pinned: {hint} docs/how-to/add-a-release.md says how to add a row."
        ) from None


def with_build(device: Device) -> tuple[Release, ...]:
    """The releases that can be installed for a device, oldest first."""
    return tuple(release for release in load() if device in release.builds)


def chosen(spec: str, device: Device) -> tuple[Build, ...]:
    """The builds for a device of some releases, oldest first.

    Args:
        spec: a version specifier (``>=0.15,<0.20``), or versions with commas between; empty for all.
        device: what they are installed for.

    Raises:
        UsageError: it is neither, or no pinned release is in it.
        EnvironmentUnusableError: a version that was named has no build for the device.
    """
    if spec and not set(spec) & set("<>=!~"):
        named = {find(version.strip()).version for version in spec.split(",")}
        return tuple(release.build(device) for release in load() if release.version in named)
    try:
        wanted = SpecifierSet(spec)
    except InvalidSpecifier:
        raise UsageError(f"{spec!r} is no version specifier: write '>=0.15,<0.20', or '0.15.1,0.16.0'") from None
    found = tuple(release.builds[device] for release in with_build(device) if release.version in wanted)
    if not found:
        raise UsageError(f"no pinned release with a {device} build is in {spec!r}: `harness releases` lists them")
    return found


def of_distribution(distribution: str, version: str) -> Build | None:
    """The pinned build that an installed distribution is, if it is one.

    A local version (``0.20.2+cu130``) is the same release.
    """
    for release in load():
        for build in release.builds.values():
            if (build.distribution, build.version) == (distribution, Version(version).public):
                return build
    return None


def matching(specifiers: str) -> tuple[Release, ...]:
    """The pinned releases that a version specifier, ``>=0.16,<0.30``, lets through, oldest first.

    Raises:
        UsageError: it is no specifier, or no release fits it.
    """
    try:
        wanted = SpecifierSet(specifiers)
    except InvalidSpecifier as error:
        raise UsageError(f"{error}. Write releases as pip does: '>=0.16,<0.30', '==0.16.0'.") from error
    found = tuple(release for release in load() if Version(release.version) in wanted)
    if not found:
        raise UsageError(f"no pinned release is {specifiers}: `harness releases` lists them.")
    return found
