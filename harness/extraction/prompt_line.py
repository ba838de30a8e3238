"""What one line of a prompt file says: a sample, or what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Tokenize = Callable[[str], list[int]]

# As vLLM's TokensPrompt, as the files of vLLM's connector, and as the data sets that speculators trains on call them.
IDS = ("prompt_token_ids", "token_ids", "input_ids")
# As vLLM's TextPrompt, and as data sets call it.
TEXTS = ("prompt", "text")


class BadLineError(ValueError):
    """What is wrong with a line, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One sample: ``[n]`` token ids, and ``[n]`` of 0 and 1 where the line has a mask."""

    token_ids: list[int]
    loss_mask: list[int] | None


def parse(text: bytes, tokenize: Tokenize) -> Line:
    """The sample of a line. Other keys than those above and ``loss_mask`` are a data set's own, and left alone.

    Args:
        text: the line.
        tokenize: the ids of a text; called for lines without ids only.

    Raises:
        BadLineError: it is none.
    """
    if not text.strip():
        raise BadLineError("is empty: every line is a sample. Remove it")
    try:
        row = json.loads(text)
    except ValueError as error:  # Also bytes that are not UTF-8.
        raise BadLineError(f"is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadLineError(f"is no JSON object. Write {{{json.dumps(IDS[0])}: [...]}}")
    token_ids = _token_ids(row, tokenize)
    if not token_ids:
        raise BadLineError("has no token: a prefill needs at least one")
    return Line(token_ids=token_ids, loss_mask=_loss_mask(row, len(token_ids)))


def _token_ids(row: dict[str, Any], tokenize: Tokenize) -> list[int]:
    given = [key for key in IDS if key in row] or [key for key in TEXTS if key in row]
    if not given:
        raise BadLineError(f"has no prompt. Give token ids as {' or '.join(IDS)}, or text as {' or '.join(TEXTS)}")
    if len(given) > 1:
        raise BadLineError(f"has {' and '.join(given)}. Leave one")
    (key,) = given
    if key in IDS:
        return _integers(key, row[key])
    if not isinstance(row[key], str):
        raise BadLineError(f"has {key} {_shown(row[key])}, which is no text. Token ids go under {IDS[0]}")
    return tokenize(row[key])


def _integers(key: str, value: Any) -> list[int]:
    if not isinstance(value, list):
        raise BadLineError(f"has {key} {_shown(value)}, which is no list of token ids")
    if set(map(type, value)) - {int}:  # Not isinstance: a boolean is an int, too. And not one by one: there are many.
        place, item = next((place, item) for place, item in enumerate(value) if type(item) is not int)
        raise BadLineError(f"has {_shown(item)} in {key}[{place}], where an integer belongs")
    return value


def _loss_mask(row: dict[str, Any], length: int) -> list[int] | None:
    if row.get("loss_mask") is None:
        return None
    mask = _integers("loss_mask", row["loss_mask"])
    if len(mask) != length:
        raise BadLineError(f"has a loss_mask of {len(mask)} for {length} tokens. Give one a token")
    if other := set(mask) - {0, 1}:
        raise BadLineError(f"has {min(other)} in loss_mask, which takes 0 and 1")
    return mask


def _shown(value: Any) -> str:
    return f"{json.dumps(value):.40}"
