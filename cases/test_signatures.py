"""The signatures and fields that clients rely on, read from the installed source files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import surface, watched

if TYPE_CHECKING:
    from collections.abc import Callable

CAUSE = "this vLLM is not the pinned build of its version: a patched, a nightly or a source build"
ADVICE = "`harness probe` says which distribution is installed; pin the release, or add a row for the build"


@pytest.mark.parametrize("area", watched.AREAS)
def test_signatures(area: str, matches: Callable[..., None]) -> None:
    """What clients call and read has the parameters and fields of the pinned release."""
    found = surface.describe(surface.read(surface.installed_root(), watched.AREAS[area]))
    matches(found, cause=CAUSE, advice=ADVICE)


def test_package(matches: Callable[..., None]) -> None:
    """The package has the modules and the requirements of the pinned release."""
    matches(surface.describe(surface.package(surface.installed_root())), cause=CAUSE, advice=ADVICE)
