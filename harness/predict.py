"""Which uses of a client break on a release, and with which error: from the surface and the snapshots alone."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from . import capabilities
from .entries import LATER
from .structure import difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .entries import Entry
    from .structure import JSON
    from .surface import Surface
    from .uses import Client, Use

Kind: TypeAlias = Literal["import", "call", "attribute", "base", "recorded", "not recorded"]


@dataclass(frozen=True, kw_only=True)
class Break:
    """One use that does not work; ``not recorded`` says that nothing is known of it on that release."""

    kind: Kind
    object: str
    error: str
    at: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def breaks(
    client: Client, surface: Surface, *, recorded: Mapping[str, JSON], expected: Mapping[str, JSON]
) -> list[Break]:
    """What breaks, in the order in which the client gets there; each as if those before it were repaired.

    Args:
        client: what it uses.
        surface: of the release.
        recorded: the release's snapshots, as ``diff.snapshots`` gives them.
        expected: those of the release that the client was written for.
    """
    has = capabilities.of(surface).as_dict()
    found: list[Break] = []
    for use in client.uses:
        if any(has[name.removeprefix("not ")] is name.startswith("not ") for name in use.when):
            continue
        conditional = (words for each, words in use.keywords_if.items() if has[each])
        keywords = (*use.keywords, *itertools.chain.from_iterable(conditional))
        kind, error = _fault(use, keywords, surface, recorded, expected)
        if error:
            found.append(Break(kind=kind, object=use.object, error=error, at=use.at))
    return found


def _fault(
    use: Use,
    keywords: Sequence[str],
    surface: Surface,
    recorded: Mapping[str, JSON],
    expected: Mapping[str, JSON],
) -> tuple[Kind, str]:
    """The kind of a use, and what is wrong with it, if anything is."""
    if use.imported_from:
        return "import", _import(use, surface)
    if use.recorded:
        return _recorded(use, recorded, expected)
    entry = surface.get(use.object)
    if entry is None:
        return "attribute", _absent(use.object, surface)
    if use.inherits:
        error = use.error or f"{use.object.partition('.')[0]} is no {use.inherits}"
        return "base", "" if use.inherits in entry.parameters else error
    if use.reads or entry.shape == "is":
        gone = [name for name in use.reads if name not in entry.parameter_names]
        return "attribute", "; ".join(_absent(f"{use.object}.{name}", surface) for name in gone)
    return "call", call_error(entry, positional=use.positional, keywords=keywords, strict=_strict(surface))


def _import(use: Use, surface: Surface) -> str:
    """What Python says to the import; an object is a function, a class, or known by a member of it."""
    name = use.object.partition(".")[0]
    entries = (entry for key, entry in surface.items() if key.partition(".")[0] == name)
    if any(use.imported_from in (entry.module, *entry.also) for entry in entries):
        return ""
    packages = itertools.accumulate(use.imported_from.split("."), lambda path, part: f"{path}.{part}")
    there = ("vllm", *surface["modules"].parameters)
    missing = next((package for package in packages if package not in there), None)
    if missing:
        return f"ModuleNotFoundError: No module named '{missing}'"
    return f"ImportError: cannot import name '{name}' from '{use.imported_from}'"


def _absent(name: str, surface: Surface) -> str:
    holder, dot, attribute = name.rpartition(".")
    if dot and any(key.partition(".")[0] == holder for key in surface):
        return f"AttributeError: '{holder}' object has no attribute '{attribute}'"
    return f"{holder or name} is not in this release"


def _recorded(use: Use, recorded: Mapping[str, JSON], expected: Mapping[str, JSON]) -> tuple[Kind, str]:
    if use.recorded not in recorded or use.recorded not in expected:
        return "not recorded", f"{use.recorded} was not recorded: no signature shows it"
    found = difference(expected[use.recorded], recorded[use.recorded])
    details = "; ".join(found).replace("the value: ", "")
    return "recorded", f"{use.error} ({details})" if found else ""


def _strict(surface: Surface) -> bool:
    """Whether config classes refuse a field that they lack: since 0.16.0 (config/utils.py); before, it is lost."""
    entry = surface.get("config(extra=)")
    return entry is not None and "'forbid'" in entry.parameters


def call_error(entry: Entry, *, positional: int, keywords: Iterable[str], strict: bool = True) -> str:
    """What Python, or pydantic for a config class, says to a call; empty if it binds.

    Args:
        entry: the function, or the class by its fields.
        positional: how many arguments are given by position, ``self`` not counted.
        keywords: the names of the others.
        strict: whether config classes refuse fields that they lack.
    """
    if entry.shape == "fields" and entry.module.startswith("vllm.config"):
        return _pydantic_error(entry, positional, keywords, strict=strict)
    function = _stand_in(entry)
    bound = [None] * (positional + ("." in function.__qualname__))
    try:
        function(*bound, **dict.fromkeys(keywords))
    except TypeError as error:
        return f"TypeError: {error}"
    return ""


def _stand_in(entry: Entry) -> Callable[..., None]:
    """A function with the recorded parameters, so that Python itself binds the call and words the error."""
    parts = ["self"] if entry.shape == "fields" or "." in entry.name else []
    for parameter in entry.parameters:
        name, equals, default = parameter.partition("=")
        if default != LATER:
            parts.append(f"{name}=None" if equals else name)
    space: dict[str, Any] = {}
    exec(f"def function({', '.join(parts)}): pass", space)  # noqa: S102 - names that griffe parsed, and no defaults.
    function: Callable[..., None] = space["function"]
    function.__qualname__ = f"{entry.name}.__init__" if entry.shape == "fields" else entry.name
    return function


def _pydantic_error(entry: Entry, positional: int, keywords: Iterable[str], *, strict: bool) -> str:
    """As pydantic 2.12 to 2.14 word it for dataclasses, without its links."""
    given = [*entry.parameter_names[:positional], *keywords]
    takes = {
        name: default for name, _, default in (each.partition("=") for each in entry.parameters) if default != LATER
    }
    faults = [f"{name}: Field required" for name, default in takes.items() if not default and name not in given]
    if strict:
        faults += [f"{name}: Unexpected keyword argument" for name in given if name not in takes]
    many = "error" if len(faults) == 1 else "errors"
    return f"ValidationError: {len(faults)} validation {many} for {entry.name}: {'; '.join(faults)}" if faults else ""


def ranges(versions: Sequence[str], chosen: Iterable[str]) -> str:
    """``0.11.0, 0.12.0..0.16.0``: versions of an ordered list, neighbours joined."""
    wanted = set(chosen)
    runs = (list(run) for there, run in itertools.groupby(versions, wanted.__contains__) if there)
    ends = ((run[0], run[-1]) for run in runs)
    return ", ".join(first if first == last else f"{first}..{last}" for first, last in ends)


def lines(client: Client, found: Mapping[str, Sequence[Break]]) -> list[str]:
    """What breaks where, for a terminal: an error once, with the releases that have it."""
    versions = list(found)
    broken = [version for version in versions if any(each.kind != "not recorded" for each in found[version])]
    out = [f"{client.name}: breaks on {len(broken)} of {len(versions)} releases"]
    order = [Break(kind="call", object=use.object, error="", at=use.at) for use in client.uses]
    places = {(each.object, each.at): number for number, each in reversed(list(enumerate(order)))}
    errors = {each: None for version in versions for each in found[version]}
    for each in sorted(errors, key=lambda item: places[item.object, item.at]):
        where = ranges(versions, (version for version in versions if each in found[version]))
        out += ["", f"{where}   {each.object}   [{each.kind}]", f"  {each.error}", f"  at {each.at}"]
    whole = [version for version in versions if not found[version]]
    return [*out, "", f"nothing breaks on: {ranges(versions, whole) or 'none'}"]
