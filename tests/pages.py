"""The documentation, as its tests read it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from conftest import TESTS

if TYPE_CHECKING:
    from pathlib import Path

ROOT = TESTS.parent
README = ROOT / "README.md"
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The text without its blocks."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in _FENCED.findall(page.read_text(encoding="utf-8")) if kind == language]


def links(page: Path) -> list[str]:
    """What it links to within the project."""
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The names by which its headings can be linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def typed(page: Path) -> list[str]:
    """What a reader is to type: the lines of its console blocks that have a prompt."""
    return [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]


def named(page: Path) -> list[str]:
    """What it names in running text: code between single backquotes."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]
