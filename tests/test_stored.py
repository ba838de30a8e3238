"""Whether a file that was delivered is whole: what its bytes say, and what the system says that cannot read them."""

from __future__ import annotations

import errno
import os
import resource
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from delivering import FORM, states, text
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import DeliveryError
from harness.extraction import stored
from harness.extraction.layouts import LAYOUTS
from harness.extraction.prompt_file import DIGEST_BYTES

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = stored.Stored(dtype=FORM.dtype, shape=(3, FORM.layers, FORM.hidden_size), ids=bytes(DIGEST_BYTES))
WHOLE = LAYOUTS["connector"].head(FORM, text(3)) + states(0, 3).tobytes()
OF_THE_SYSTEM = [
    *(OSError(number, os.strerror(number)) for number in (errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE)),
    *(MemoryError(), ModuleNotFoundError("No module named 'torch'")),
]


def _header(*, ids: Any, states: Any) -> bytes:
    header = b'{"token_ids": {"data_offsets": %s}, "hidden_states": %s}' % (repr(ids).encode(), states)
    return len(header).to_bytes(8, "little") + header + bytes(64)


BYTES = st.one_of(
    st.binary(min_size=1, max_size=100),
    st.builds(lambda length, rest: length.to_bytes(8, "little") + rest, st.integers(0, 2**64 - 1), st.binary()),
    st.builds(
        lambda begin, end: _header(ids=[begin, end], states=b"{}"),
        st.integers(-(2**70), 2**70),
        st.integers(-(2**70), 2**70),
    ),
    st.builds(
        lambda at, byte: WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :], st.integers(0, 400), st.integers(0, 255)
    ),
)


@given(content=BYTES)
def test_bytes_of_any_kind_are_the_files_fault(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """None of them is taken for an error of the system, which would keep a folder from ever going on."""
    path = tmp_path_factory.mktemp("files") / "0.safetensors"
    path.write_bytes(content)
    assert stored.fault(path, len(content), "connector", EXPECTED) is not None


@pytest.mark.parametrize("error", OF_THE_SYSTEM, ids=repr)
def test_error_of_the_system_says_nothing_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(_path: Path) -> stored.Stored:
        raise error

    path = tmp_path / "0.safetensors"
    path.write_bytes(b"whole")
    monkeypatch.setitem(stored._READERS, "connector", refuse)
    with pytest.raises(
        DeliveryError, match=r"0\.safetensors cannot be read now \(.*\); nothing was removed"
    ) as caught:
        stored.fault(path, 5, "connector", EXPECTED)
    assert type(error).__name__ in str(caught.value), caught.value


def test_files_that_torch_cannot_map_are_no_bad_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens a file and maps it, and says RuntimeError if the second is one descriptor too many."""

    def load(_path: Path, **_named: Any) -> None:
        raise RuntimeError("unable to open file in read-only mode: Too many open files (24)")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(load=load))
    path = tmp_path / "data_0.pt"
    path.write_bytes(b"whole")
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
    try:
        with pytest.raises(DeliveryError, match="Too many open files"):
            stored.fault(path, 5, "speculators", EXPECTED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert stored.fault(path, 5, "speculators", EXPECTED) is not None, "bad bytes still are"
