"""What broke, as data a person can act on."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One broken promise.

    ``expected`` and ``got`` are short texts with the values in them; ``cause`` is the likely one, with where
    in vLLM it was seen if that is known; ``advice`` says what to do.
    """

    expected: str
    got: str
    cause: str
    advice: str

    def explain(self) -> str:
        """The finding as lines for a terminal."""
        return "\n".join(
            f"{label:<9} {_indent(text)}"
            for label, text in (
                ("expected", self.expected),
                ("got", self.got),
                ("cause", self.cause),
                ("to do", self.advice),
            )
        )

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


class BrokenPromiseError(AssertionError):
    """Raised by a case; carries its finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.explain())
        self.finding = finding


def expect(condition: bool, *, expected: str, got: str, cause: str, advice: str) -> None:
    """Raise a finding unless a condition holds.

    Raises:
        BrokenPromiseError: it does not.
    """
    if not condition:
        raise BrokenPromiseError(Finding(expected=expected, got=got, cause=cause, advice=advice))


# What differs from run to run and from machine to machine: folders, addresses, numbers.
_INCIDENTAL = re.compile(r"(?:/[^\s/'\"]+)+/|0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def alike(one: Finding, other: Finding) -> bool:
    """Whether two findings are the same failure, seen twice: the same words, whatever the numbers and folders.

    What was expected may differ: a release that needed more repairs before it says so there.
    """
    return _words(one) == _words(other)


def _words(finding: Finding) -> tuple[str, ...]:
    return tuple(_INCIDENTAL.sub("#", text) for text in (finding.got, finding.cause))


def _indent(text: str) -> str:
    return text.replace("\n", "\n" + " " * 10)
