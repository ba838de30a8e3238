"""The facts that decide how this vLLM is driven, and the adapter that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import adapters, capabilities

if TYPE_CHECKING:
    from collections.abc import Callable


def test_capabilities(matches: Callable[..., None]) -> None:
    """The capabilities of a pinned release do not change."""
    has = capabilities.installed()
    matches(
        {**has.as_dict(), "generation": adapters.generation(has)},
        cause="the installed files are not those of the release, or the probe reads them differently",
        advice="compare `harness probe --json` with the snapshot; reinstall the environment if files differ",
    )
