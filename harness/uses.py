"""Which client relies on what of vLLM, declared as data: ``uses.toml``, or a file of the same form."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import releases, watched
from .capabilities import Capabilities
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORM = "docs/how-to/predict-what-breaks.md shows the form"


@dataclass(frozen=True, kw_only=True)
class Use:
    """One use of one object, as the client makes it; what is left empty is not made.

    A use with none of the parts calls the object without arguments.
    """

    object: str
    """A name of the surface: ``Request.__init__``, ``SchedulerConfig``, ``get_kv_cache_configs``."""
    at: str = ""
    """Where in the client."""
    imported_from: str = ""
    """The module that the client imports it from; nothing is called."""
    positional: int = 0
    keywords: tuple[str, ...] = ()
    keywords_if: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """More keywords, each given only where a capability is there."""
    reads: tuple[str, ...] = ()
    """Attributes that it reads of an instance; nothing is called."""
    inherits: str = ""
    """A base that the class must have; nothing is called."""
    recorded: str = ""
    """A snapshot whose structure it takes for granted, ``test_reply/test_first_rank[executor-mp-tp1]``."""
    when: tuple[str, ...] = ()
    """Only where these capabilities are there, or, after ``not``, are not."""
    error: str = ""
    """What the client itself raises or does then, where that is not vLLM's to say."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """What a client declares, in the order in which it gets there."""

    name: str
    written_for: str
    """The release whose recorded replies it expects."""
    uses: tuple[Use, ...]

    @property
    def objects(self) -> frozenset[str]:
        return frozenset(use.object for use in self.uses)

    @property
    def recorded(self) -> frozenset[str]:
        return frozenset(use.recorded for use in self.uses if use.recorded)


@functools.cache
def declared() -> Mapping[str, Client]:
    """The clients of ``uses.toml``."""
    text = importlib.resources.files(__package__).joinpath("uses.toml").read_text(encoding="utf-8")
    return _clients(tomllib.loads(text), "uses.toml")


def find(name: str) -> tuple[Client, ...]:
    """A declared client, or all those of a TOML file.

    Raises:
        UsageError: there is no such client or file, or it declares what nobody reads.
    """
    if name in declared():
        return (declared()[name],)
    if not name.endswith(".toml"):
        raise UsageError(f"no client {name!r} is declared: give one of {', '.join(declared())}, or a .toml file.")
    try:
        text = Path(name).read_text(encoding="utf-8")
        return tuple(_clients(tomllib.loads(text), name).values())
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {name}: give the path of one that declares clients ({_FORM}).") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}. Give a file that can be ({_FORM}).") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{name} cannot be read as TOML: {error}. Correct it ({_FORM}).") from error


def _clients(document: dict[str, Any], source: str) -> dict[str, Client]:
    try:
        clients = {
            name: Client(
                name=name,
                written_for=row["written_for"],
                uses=tuple(_use(each) for each in row["uses"]),
            )
            for name, row in document.items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{source} declares a client wrongly: {error}. Correct it ({_FORM}).") from error
    for client in clients.values():
        try:
            releases.find(str(client.written_for))
        except UsageError as error:  # With nothing to compare with, no reply that was recorded could break.
            raise UsageError(f"{source}: {client.name} is written_for another release: {error}") from error
        if unknown := sorted(client.objects - watched.names()):
            raise UsageError(
                f"{source}: {client.name} uses {', '.join(unknown)}, which nobody reads: "
                f"correct the name, or add a row to harness/watched.py."
            )
        asked = {name.removeprefix("not ") for use in client.uses for name in (*use.keywords_if, *use.when)}
        if unknown := sorted(asked - set(Capabilities.__dataclass_fields__)):
            raise UsageError(
                f"{source}: {client.name} asks for {', '.join(unknown)}, which is no capability: "
                f"`harness probe` lists them."
            )
    return clients


def _use(row: dict[str, Any]) -> Use:
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    given["keywords_if"] = {name: tuple(words) for name, words in row.get("keywords_if", {}).items()}
    return Use(**given)
