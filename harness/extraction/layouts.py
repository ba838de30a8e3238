"""How a sample's file looks. This module is imported by worker processes: the standard library only.

A layout says what stands before the rows in the file that is written, ``<name>.partial``, and what makes the finished
file of it. Rows are ``[layers, hidden_size]`` in the model's dtype, one after the other.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import io
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
    copies: bool
    """Whether `finish` holds all of a sample in memory: then a rank finishes one at a time."""

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
    copies = False

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


class Speculators:
    """As speculators 0.3.0 reads it (train/data.py, `standardize_data_v1`): ``data_<index>.pt``, of `torch.save`.

    ``input_ids [n]`` and ``loss_mask [n]`` int64, ones where the job has none; and ``hidden_states``, a list of
    ``[n, hidden_size]`` in the model's dtype, layers in the order asked for; its training takes the last for target.
    """

    name = "speculators"
    copies = True

    def file(self, index: int) -> str:
        return f"data_{index}.pt"

    def head(self, form: Form, text: Text) -> bytes:
        return b""

    def finish(self, partial: Path, final: Path, form: Form, text: Text) -> None:
        import torch  # Here, as the other layouts need none.

        shape = (text.rows, form.layers, form.hidden_size)
        rows = torch.from_file(str(partial), size=math.prod(shape), dtype=getattr(torch, form.dtype)).reshape(shape)
        ids = torch.frombuffer(bytearray(text.token_ids), dtype=torch.int64)
        mask = text.loss_mask
        sample = {
            "input_ids": ids,
            "loss_mask": torch.ones_like(ids)
            if mask is None
            else torch.frombuffer(bytearray(mask), dtype=torch.int64),
            "hidden_states": [states.contiguous() for states in rows.unbind(1)],
        }
        whole = final.with_name(f"{final.name}.whole.partial")
        try:
            # A file, not a name: torch would put the name into what it writes.
            with whole.open("wb", buffering=0) as file:
                _save(sample, _Writing(file))
            whole.replace(final)
        finally:
            whole.unlink(missing_ok=True)
        partial.unlink()


class _Writing:
    """A file, and the error that it raised: torch raises one of its own, which does not say why."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self.error = error
            raise
        return size

    def flush(self) -> None:
        """Nothing is held back."""


def _save(sample: dict[str, Any], file: _Writing) -> None:
    import torch  # As in `Speculators.finish`.

    try:
        torch.save(sample, file)
    except RuntimeError as error:
        raise file.error or error from error


def _tensor(dtype: str, shape: list[int], place: int, size: int) -> dict[str, object]:
    return {"dtype": _SAFETENSORS[dtype], "shape": shape, "data_offsets": [place, place + size]}


def _before_rows(tensors: Mapping[str, object], data: bytes) -> bytes:
    """The header, and the tensors that come first, ending at a page: the format lets a header end in spaces."""
    header = json.dumps(tensors, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header) + len(data)) % _PAGE)
    return len(header).to_bytes(8, "little") + header + data


LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in (Connector(), Speculators())}
