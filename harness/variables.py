"""Which environment variables evidence is bound to, and their values: the rules are data, with a reason each."""

from __future__ import annotations

import fnmatch
import functools
import importlib.resources
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Variables, as globs, and what they decide."""

    names: tuple[str, ...]
    why: str

    def covers(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)


@functools.cache
def load() -> dict[str, tuple[Rule, ...]]:
    """The rules under ``bound``, and the exceptions under ``free``."""
    text = importlib.resources.files(__package__).joinpath("variables.toml").read_text(encoding="utf-8")
    return {
        kind: tuple(Rule(names=tuple(row["names"]), why=row["why"]) for row in rows)
        for kind, rows in tomllib.loads(text).items()
    }


def reason(name: str) -> str | None:
    """Why evidence is bound to a variable; None if it is not."""
    rules = load()
    if any(rule.covers(name) for rule in rules["free"]):
        return None
    return next((rule.why for rule in rules["bound"] if rule.covers(name)), None)


def bound(builds: Mapping[str, str], users: Mapping[str, str]) -> dict[str, str]:
    """The variables that a run of the suite is bound to, sorted by name.

    Args:
        builds: what the suite sets for the build at hand.
        users: what is set here, which wins.
    """
    effective = {**builds, **users}
    return {name: effective[name] for name in sorted(effective) if reason(name) is not None}


def left_to_the_suite(builds: Mapping[str, str], users: Mapping[str, str]) -> dict[str, str]:
    """What the suite sets by itself, and a command that is started from here does not get."""
    return {name: value for name, value in sorted(builds.items()) if name not in users and reason(name) is not None}
