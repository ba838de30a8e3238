"""The files that vLLM's example hidden-states connector writes: waiting for them, and checking them.

Beside ``<request>.safetensors`` stands ``<request>.safetensors.lock``, made before the request's output is given, and
locked until the file is whole (0.24.0 to 0.32.0, example_hidden_states_connector.py, `wait_for_save` and
`_write_tensors`). vLLM's own `load_hidden_states` waits for that lock without a limit.
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import IncompleteSampleError, ReplyTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A step without work, or a look at a lock, costs less than this.
_PAUSE = 0.005


def promised(number: int, output: Any) -> Path:
    """Where vLLM says that it writes a prompt's states.

    Raises:
        IncompleteSampleError: it does not say.
    """
    path = (output.kv_transfer_params or {}).get("hidden_states_path")
    if not path:
        raise IncompleteSampleError(
            f"prompt {number}: vLLM names no hidden_states_path ({output.kv_transfer_params}). The connector did not "
            f"see the request finish; see the log."
        )
    return Path(path)


def _lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _let_go(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def wait(path: Path, deadline: float, advance: Callable[[], None]) -> None:
    """Wait until a file is whole.

    Args:
        path: the file.
        deadline: as `time.monotonic` counts.
        advance: called while there is nothing; lets vLLM go on, where nothing else does.

    Raises:
        IncompleteSampleError: the connector has let go of the file and has not written it.
        ReplyTimeoutError: it has not let go in time.
    """
    try:
        while not _let_go(_lock(path)):
            if time.monotonic() > deadline:
                raise ReplyTimeoutError(
                    f"{path.name} is still locked by the connector: the step that writes it did not come, or the "
                    f"disk of {path.parent} is slow."
                )
            advance()
            time.sleep(_PAUSE)
    except FileNotFoundError as error:
        raise IncompleteSampleError(
            f"{path.name} has no lock beside it: no worker saw the request begin, or something else deletes files in "
            f"{path.parent}."
        ) from error
    if not path.exists():
        raise IncompleteSampleError(
            f"{path.name} was not written: the request was aborted, or writing failed. See the log."
        )


def take(path: Path) -> tuple[list[int], Any]:
    """A file's token ids and its states ``[n, layers, hidden_size]``; it is deleted, with its lock.

    Raises:
        IncompleteSampleError: it is no safetensors file, or lacks either.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(str(path))
        return tensors["token_ids"].tolist(), tensors["hidden_states"]
    except (SafetensorError, KeyError) as error:
        raise IncompleteSampleError(f"{path.name} cannot be read: {type(error).__name__}: {error}.") from error
    finally:
        path.unlink(missing_ok=True)
        _lock(path).unlink(missing_ok=True)


def check(name: str, prompt: Sequence[int], token_ids: Sequence[int], states: Any, shape: Sequence[int]) -> None:
    """The states belong to the prompt, and are whole.

    Raises:
        IncompleteSampleError: the token ids are others, or the shape is not ``[n, layers, hidden_size]``.
    """
    if list(token_ids) != list(prompt):
        raise IncompleteSampleError(
            f"{name} holds {len(token_ids)} token ids, and they are not the {len(prompt)} of the prompt: states of "
            f"another request, or cut."
        )
    if list(states.shape) != list(shape):
        raise IncompleteSampleError(
            f"{name} holds states {list(states.shape)} instead of {list(shape)}: rows or layers are missing."
        )
