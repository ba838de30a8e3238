"""Whether a file that was delivered is still whole: its size, its header and its token ids are looked at."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .prompt_file import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

# As safetensors calls them.
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What a file holds: states ``[tokens, layers, hidden_size]``, and ids that hash to ``ids``."""

    dtype: str
    shape: tuple[int, ...]
    ids: bytes


def read(path: Path, layout: str) -> Stored:
    """What a file holds.

    Raises:
        Exception: it cannot be read, or is no such file; of any class, as the layouts' own readers raise it.
    """
    return _READERS[layout](path)


def fault(path: Path, size: int, layout: str, expected: Stored) -> str | None:
    """Why a file is not the one that was delivered; None if it is."""
    try:
        if (found := path.stat().st_size) != size:
            return f"is {found} bytes and was {size}"
        holds = read(path, layout)
    except FileNotFoundError:
        return "is gone"
    except Exception as error:  # noqa: BLE001 - bytes of any kind may stand there.
        return f"cannot be read ({type(error).__name__}: {error})"
    return None if holds == expected else f"holds {holds.dtype} {list(holds.shape)}, or other ids, or another dtype"


def _connector(path: Path) -> Stored:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        states, ids = header["hidden_states"], header["token_ids"]
        begin, end = ids["data_offsets"]
        file.seek(8 + length + begin)
        token_ids = array("q", file.read(end - begin))
    return Stored(dtype=_DTYPES[states["dtype"]], shape=tuple(states["shape"]), ids=digest(token_ids))


def _speculators(path: Path) -> Stored:
    import torch  # Here, as a run in the other layout needs none in this process.

    held = torch.load(path, mmap=True, weights_only=True, map_location="cpu")
    states = held["hidden_states"]
    (dtype,), (shape,) = ({str(rows.dtype) for rows in states}, {tuple(rows.shape) for rows in states})
    return Stored(
        dtype=dtype.removeprefix("torch."),
        shape=(shape[0], len(states), *shape[1:]),
        ids=digest(array("q", held["input_ids"].tolist())),
    )


_READERS: Mapping[str, Callable[[Path], Stored]] = {"connector": _connector, "speculators": _speculators}
