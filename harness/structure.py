"""Any reply or tensor tree as a JSON tree, and the difference of two."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"


def describe(value: Any) -> JSON:  # noqa: PLR0911 - one return a kind of value is the clearest.
    """The structure of a value: nesting, types, and for tensors dtype and shape; no numbers out of tensors.

    Tensors are told by what they have, not by their class, so torch is not needed: ``tensor float32 [5, 64]``.
    Keys become strings, as in JSON: ranks and layers are integers.
    """
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"tensor {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, dict):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [describe(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [describe(item) for item in value]}
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{type(value).__name__} of {len(value)}"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"{type(value).__module__}.{type(value).__qualname__}"


def depth(value: JSON) -> int:
    """How many lists deep the first leaf is."""
    levels = 0
    while isinstance(value, list) and value:
        levels += 1
        value = value[0]
    return levels


def difference(expected: JSON, got: JSON, path: str = "") -> list[str]:
    """What differs, a line each, with the path to it; empty if nothing does."""
    here = path or "the value"
    if _same(expected, got):
        return []
    if _same(expected, [got]):
        return [f"{here}: one list less: expected a list of one, got its item bare: {_short(got)}"]
    if _same([expected], got):
        return [f"{here}: one list more: expected the bare item, got a list of one: {_short(got)}"]
    if isinstance(expected, dict) and isinstance(got, dict):
        return _dict_difference(expected, got, path)
    if isinstance(expected, list) and isinstance(got, list):
        return _list_difference(expected, got, path, here)
    return [f"{here}: expected {_short(expected)}, got {_short(got)}"]


def _same(one: JSON, other: JSON) -> bool:
    """Equal as JSON: to Python, True is 1 and 1 is 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _dict_difference(expected: dict[str, JSON], got: dict[str, JSON], path: str) -> list[str]:
    lines = [f"{path}.{key}: missing".lstrip(".") for key in expected if key not in got]
    lines += [f"{path}.{key}: new: {_short(got[key])}".lstrip(".") for key in got if key not in expected]
    for key, value in expected.items():
        if key in got:
            lines += difference(value, got[key], f"{path}.{key}".lstrip("."))
    return lines


def _list_difference(expected: list[JSON], got: list[JSON], path: str, here: str) -> list[str]:
    if _scalars(expected) and _scalars(got):
        lines = [f"{here}: gone: {_short(item)}" for item in dict.fromkeys(expected) if item not in got]
        lines += [f"{here}: new: {_short(item)}" for item in dict.fromkeys(got) if item not in expected]
        return lines or [f"{here}: expected {_short(expected)}, got {_short(got)}"]
    lines = [] if len(expected) == len(got) else [f"{here}: {len(expected)} items expected, {len(got)} got"]
    for index, (one, other) in enumerate(zip(expected, got, strict=False)):
        lines += difference(one, other, f"{path}[{index}]")
    return lines


def _scalars(items: list[JSON]) -> bool:
    return not any(isinstance(item, list | dict) for item in items)


def _short(value: JSON, limit: int = 160) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
