"""Whether a file that was delivered is still whole: its size, its header and its token ids are looked at."""

from __future__ import annotations

import json
import mmap
from array import array
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from harness.errors import DeliveryError

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
        OSError: the file system does not let it be read; `MemoryError`, `ImportError`: this process cannot read it.
        Exception: it is no such file; of any other class, as the layouts' own readers raise it.
    """
    return _READERS[layout](path)


def fault(path: Path, size: int, layout: str, expected: Stored) -> str | None:
    """Why a file is not the one that was delivered; None if it is.

    Raises:
        DeliveryError: it cannot be read now, which says nothing of what is in it.
    """
    try:
        if (found := path.stat().st_size) != size:
            return f"is {found} bytes and was {size}"
        holds = read(path, layout)
    except FileNotFoundError:
        return "is gone"
    except (OSError, MemoryError, ImportError) as error:
        raise DeliveryError(
            f"{path} cannot be read now ({type(error).__name__}: {error}); nothing was removed. Run the same command "
            f"again once it can be; if that stays, remove the file, and its sample is extracted again."
        ) from error
    except Exception as error:  # noqa: BLE001 - bytes of any kind may stand there.
        return f"cannot be read ({type(error).__name__}: {error})"
    return None if holds == expected else f"holds {holds.dtype} {list(holds.shape)}, or other ids, or another dtype"


def _connector(path: Path) -> Stored:
    with path.open("rb") as file:
        size = path.stat().st_size
        rows = 8 + int.from_bytes(_part(file, 0, 8, size), "little")
        header = json.loads(_part(file, 8, rows, size))
        states, ids = header["hidden_states"], header["token_ids"]
        begin, end = ids["data_offsets"]
        token_ids = array("q", _part(file, rows + begin, rows + end, size))
    return Stored(dtype=_DTYPES[states["dtype"]], shape=tuple(states["shape"]), ids=digest(token_ids))


def _part(file: IO[bytes], begin: int, end: int, size: int) -> bytes:
    """Bytes of a file, which says itself where they are: a bad place is no error of the file system or the memory."""
    if not 0 <= begin <= end <= size:
        raise ValueError(f"bytes {begin} to {end} of {size}")
    file.seek(begin)
    return file.read(end - begin)


def _speculators(path: Path) -> Stored:
    import torch  # Here, as a run in the other layout needs none in this process.

    # As torch is about to, which says of an error of the system the same as of bad bytes.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY):
        pass
    held = torch.load(path, mmap=True, weights_only=True, map_location="cpu")
    states = held["hidden_states"]
    (dtype,), (shape,) = ({str(rows.dtype) for rows in states}, {tuple(rows.shape) for rows in states})
    return Stored(
        dtype=dtype.removeprefix("torch."),
        shape=(shape[0], len(states), *shape[1:]),
        ids=digest(array("q", held["input_ids"].tolist())),
    )


_READERS: Mapping[str, Callable[[Path], Stored]] = {"connector": _connector, "speculators": _speculators}
