"""How a sample's file looks. This module is imported by worker processes: the standard library only.

A layout says what stands before the rows in the file that is written, ``<name>.partial``, and what makes the finished
file of it. Rows are ``[layers, hidden_size]`` in the model's dtype, one after the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_SAFETENSORS = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "int64": "I64"}
_PAGE = 4096


@dataclass(frozen=True, kw_only=True)
class Form:
    """What the rows of all samples have in common; ``dtype`` is torch's name, a key of `ITEM_BYTES`."""

    layers: int
    hidden_size: int
    dtype: str

    @property
    def row_bytes(self) -> int:
        return self.layers * self.hidden_size * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class Text:
    """A sample's token ids, and its loss mask where the job has one, as the bytes of int64, one a row."""

    token_ids: bytes
    loss_mask: bytes | None = None

    @property
    def rows(self) -> int:
        return len(self.token_ids) // 8


class Layout(Protocol):
    name: str

    def file(self, index: int) -> str:
        """The name of the finished file."""

    def head(self, form: Form, text: Text) -> bytes:
        """What stands before the rows in the partial file."""

    def finish(self, partial: Path, final: Path, form: Form, text: Text) -> None:
        """Make the finished file of a partial one that has all its rows; it appears at once and whole.

        Raises:
            OSError: the file system does not let it; whoever called removes the partial one.
        """


class Connector:
    """As vLLM's ``ExampleHiddenStatesConnector`` writes it (0.17.1 to 0.33.0): ``<index>.safetensors``.

    ``hidden_states [n, layers, hidden_size]`` in the model's dtype, layers in the order asked for; ``token_ids [n]``
    int64; and ``loss_mask [n]`` int64, which vLLM's has not, where the job has one.
    """

    name = "connector"

    def file(self, index: int) -> str:
        return f"{index}.safetensors"

    def head(self, form: Form, text: Text) -> bytes:
        rows = text.rows
        texts = {"token_ids": text.token_ids}
        if text.loss_mask is not None:
            texts["loss_mask"] = text.loss_mask
        tensors: dict[str, object] = {}
        place = 0
        for name, data in texts.items():
            tensors[name] = _tensor("int64", [rows], place, len(data))
            place += len(data)
        shape = [rows, form.layers, form.hidden_size]
        tensors["hidden_states"] = _tensor(form.dtype, shape, place, rows * form.row_bytes)
        return _before_rows(tensors, b"".join(texts.values()))

    def finish(self, partial: Path, final: Path, form: Form, text: Text) -> None:
        del form, text
        partial.replace(final)


def _tensor(dtype: str, shape: list[int], place: int, size: int) -> dict[str, object]:
    return {"dtype": _SAFETENSORS[dtype], "shape": shape, "data_offsets": [place, place + size]}


def _before_rows(tensors: Mapping[str, object], data: bytes) -> bytes:
    """The header, and the tensors that come first, ending at a page: the format lets a header end in spaces."""
    header = json.dumps(tensors, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header) + len(data)) % _PAGE)
    return len(header).to_bytes(8, "little") + header + data


LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in (Connector(),)}
