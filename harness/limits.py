"""What a pinned build cannot do, as data, with the reason."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Something that engines may need and that some builds do not have."""

    releases: tuple[str, ...]
    device: str
    need: str
    why: str
    evidence: str


@functools.cache
def load() -> tuple[Limit, ...]:
    """All limits."""
    text = importlib.resources.files(__package__).joinpath("limits.toml").read_text(encoding="utf-8")
    return tuple(Limit(**{**row, "releases": tuple(row["releases"])}) for row in tomllib.loads(text)["limit"])


def of_build(release: str | None, device: str, needs: Collection[str]) -> Limit | None:
    """The limit that keeps a build from something that is needed of it, if there is one."""
    return next(
        (limit for limit in load() if release in limit.releases and device == limit.device and limit.need in needs),
        None,
    )


def obstacle(facts: Mapping[str, Any], device: str, needs: Collection[str]) -> str | None:
    """Why the vLLM of these facts (`identity.environment`) cannot do what is needed, or None if it can."""
    if "kimi-k25" in needs and not facts["capabilities"]["kimi_k25"]:
        return "this vLLM has no KimiK25ForConditionalGeneration"
    limit = of_build(facts["release"], device, needs)
    return limit.why if limit is not None else None
