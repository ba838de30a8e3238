from __future__ import annotations

import fcntl
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from harness.clients.extraction import files
from harness.errors import IncompleteSampleError, ReplyTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedWriter


@dataclass
class Writer:
    """What the connector does with one request's file, a step at a time."""

    path: Path
    lock: BufferedWriter
    steps: int = 0

    def write(self) -> None:
        self.steps += 1
        if self.steps == 3:
            self.path.write_bytes(b"states")
            self.lock.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with (tmp_path / "0-ab.safetensors.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Writer(tmp_path / "0-ab.safetensors", lock)


def test_waits_while_the_lock_is_held_and_lets_the_engine_go_on(writer: Writer) -> None:
    files.wait(writer.path, time.monotonic() + 10, writer.write)
    assert writer.steps == 3
    assert writer.path.read_bytes() == b"states"


def test_a_file_that_is_there_needs_no_step(writer: Writer) -> None:
    writer.path.write_bytes(b"states")
    writer.lock.close()
    files.wait(writer.path, time.monotonic() + 10, writer.write)
    assert writer.steps == 0


def test_the_wait_is_bounded(writer: Writer) -> None:
    start = time.monotonic()
    with pytest.raises(ReplyTimeoutError, match=r"0-ab\.safetensors is still locked"):
        files.wait(writer.path, start + 0.1, lambda: None)
    assert 0.1 <= time.monotonic() - start < 5


def test_let_go_without_a_file_is_an_error_at_once(writer: Writer) -> None:
    writer.lock.close()
    with pytest.raises(IncompleteSampleError, match="was not written"):
        files.wait(writer.path, time.monotonic() + 10, writer.write)
    assert writer.steps == 0


def test_a_file_without_a_lock_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "0-ab.safetensors"
    path.write_bytes(b"half")
    with pytest.raises(IncompleteSampleError, match="has no lock"):
        files.wait(path, time.monotonic() + 10, lambda: None)


def test_the_path_is_the_one_that_vllm_names() -> None:
    output = SimpleNamespace(kv_transfer_params={"hidden_states_path": "/x/0-ab.safetensors"})
    assert files.promised(0, output) == Path("/x/0-ab.safetensors")


@pytest.mark.parametrize("parameters", [None, {}, {"hidden_states_path": None}], ids=str)
def test_no_path_is_an_error(parameters: dict[str, None] | None) -> None:
    with pytest.raises(IncompleteSampleError, match="prompt 7: vLLM names no hidden_states_path"):
        files.promised(7, SimpleNamespace(kv_transfer_params=parameters))


def test_whole_states_of_the_prompt_pass() -> None:
    files.check("0", (5, 6), [5, 6], SimpleNamespace(shape=(2, 3, 64)), [2, 3, 64])


@pytest.mark.parametrize(
    ("token_ids", "shape", "said"),
    [
        ([5, 7], (2, 3, 64), "2 token ids, and they are not the 2 of the prompt"),
        ([5], (1, 3, 64), "1 token ids, and they are not the 2 of the prompt"),
        ([5, 6], (1, 3, 64), r"states \[1, 3, 64\] instead of \[2, 3, 64\]"),
        ([5, 6], (2, 2, 64), r"states \[2, 2, 64\] instead of \[2, 3, 64\]"),
        ([5, 6], (2, 3, 32), r"states \[2, 3, 32\] instead of \[2, 3, 64\]"),
    ],
    ids=["other-ids", "cut-ids", "cut-rows", "a-layer-less", "half-width"],
)
def test_anything_else_is_an_incomplete_sample(token_ids: list[int], shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(IncompleteSampleError, match=said):
        files.check("0", [5, 6], token_ids, SimpleNamespace(shape=shape), [2, 3, 64])
