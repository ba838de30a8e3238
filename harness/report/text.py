"""Text from anywhere, made fit for a terminal, for Markdown, HTML and XML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

# Control characters (but for newline and tab), those that turn the reading direction, and what UTF-8 or XML lacks.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def legible(text: str) -> str:
    r"""The text with what cannot be shown written out: an escape character becomes ``\x1b``."""
    return _UNFIT.sub(lambda match: ascii(match[0])[1:-1], text)


def fenced(text: str) -> list[str]:
    """The text as a Markdown code block that nothing in it can end."""
    text = legible(text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return [fence, *text.splitlines(), fence]


def aligned(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> list[str]:
    """A line a row, every column as wide as its widest cell; the columns in ``right`` are flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def cell(text: str) -> str:
    """The text as a Markdown table cell, or within a line: neither a column nor a tag begins in it."""
    line = " ".join(legible(text).split())
    return re.sub(r"([\\`*\[\]<|])", r"\\\1", line)
