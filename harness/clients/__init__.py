"""Clients by name: ours here, anybody's as ``module:attribute``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from harness.errors import UsageError

if TYPE_CHECKING:
    from .contract import Client

IN_HOUSE = {
    "executor": "harness.clients.executor:CLIENT",
    "llm": "harness.clients.llm:CLIENT",
    "extract-hidden-states": "harness.clients.extraction.client:CLIENT",
}


def load(name: str) -> Client:
    """The client that a name or ``module:attribute`` means.

    Raises:
        UsageError: there is no such client; nothing of vLLM has been imported by then.
    """
    target = IN_HOUSE.get(name, name)
    module, _, attribute = target.partition(":")
    if not attribute:
        raise UsageError(
            f"no client {name!r}: give one of {', '.join(IN_HOUSE)}, or module:attribute for your own "
            f"(docs/how-to/add-a-client.md)."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # Its author's module may raise anything.
        raise UsageError(f"client {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    missing = [member for member in ("name", "refuses", "open") if not hasattr(found, member)]
    if missing:
        raise UsageError(f"client {name!r} lacks {', '.join(missing)} (docs/how-to/add-a-client.md).")
    return cast("Client", found)
