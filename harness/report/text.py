"""Text from anywhere, made fit for a terminal, for Markdown, HTML and XML."""

from __future__ import annotations

import re

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


def cell(text: str) -> str:
    """The text as a Markdown table cell, or within a line: neither a column nor a tag begins in it."""
    line = " ".join(legible(text).split())
    return re.sub(r"([\\`*\[\]<|])", r"\\\1", line)
