from __future__ import annotations

import contextlib
import errno
import itertools
import os
import resource
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from delivering import FORM, PAGE, Delivering, states, text
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from harness.extraction import writers
from harness.extraction.layouts import Connector
from harness.extraction.run import EMPTY, NOT_FINITE, why_not_written
from harness.extraction.sample import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.extraction.layouts import Form, Text

SOON = 10.0


def held(gate: threading.Event) -> None:
    """A copy that takes until the gate opens."""
    assert gate.wait(SOON)


@pytest.fixture
def begun() -> Iterator[list[Delivering]]:
    """Runs that a test began: all are closed after it, and no thread of theirs is left."""
    made: list[Delivering] = []
    yield made
    for one in made:
        one.run.close()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("harness-writer")]
    for thread in threads:
        thread.join(SOON)
    left = [thread.name for thread in threads if thread.is_alive()]
    assert left == [], "closing a run ends its threads"


@pytest.fixture
def begin(begun: list[Delivering], tmp_path: Path) -> Callable[..., Delivering]:
    def make(**named: Any) -> Delivering:
        begun.append(Delivering(tmp_path, **named))
        return begun[-1]

    return make


def test_a_sample_is_a_file_with_its_states_and_ids(begin: Callable[..., Delivering], tmp_path: Path) -> None:
    made = begin()
    made.sample(3, 200)
    got = made.run.collect(SOON)
    path = tmp_path / "3.safetensors"
    assert got["failed"] == []
    assert got["delivered"] == [
        {"index": 3, "file": "3.safetensors", "tokens": 200, "bytes": path.stat().st_size},
    ]
    tensors = load_file(path)
    assert tensors["hidden_states"].dtype == np.float32
    assert np.array_equal(tensors["hidden_states"], states(3, 200))
    assert tensors["token_ids"].tolist() == list(range(300, 500))
    assert made.files() == ["3.safetensors"]
    assert made.run.collect(0.0)["delivered"] == [], "what was told once is not told again"


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_chunks_in_any_order_and_again_give_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 300), min_size=1, max_size=4))
    chunks: list[tuple[int, int, int]] = []
    for index, length in enumerate(lengths):
        cuts = sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=3))})
        chunks += [(index, start, stop - start) for start, stop in itertools.pairwise(cuts)]
    again = data.draw(st.lists(st.sampled_from(chunks), max_size=3))
    order = data.draw(st.permutations(chunks + again))
    made = Delivering(tmp_path_factory.mktemp("run"))
    for index, length in enumerate(lengths):
        made.run.announce(index, text(length, index))
    for index, start, count in order:
        made.forward(index, start, count)
    for index in range(len(lengths)):
        made.run.ends(index)
    got = made.run.collect(SOON)
    made.run.close()
    assert got["failed"] == []
    assert sorted(row["index"] for row in got["delivered"]) == list(range(len(lengths)))
    for index, length in enumerate(lengths):
        assert np.array_equal(load_file(made.folder / f"{index}.safetensors")["hidden_states"], states(index, length))
    assert len(made.files()) == len(lengths), made.files()


def test_a_file_has_its_final_name_only_once_it_is_whole(begin: Callable[..., Delivering]) -> None:
    made = begin()
    made.run.announce(0, text(100))
    made.forward(0, 0, 60)
    assert made.run.collect(SOON)["delivered"] == []
    assert made.files() == ["0.safetensors.partial"]
    made.forward(0, 60, 40)
    assert [row["index"] for row in made.run.collect(SOON)["delivered"]] == [0]
    assert made.files() == ["0.safetensors"]


def test_rows_that_never_come_fail_the_sample_when_its_request_ends(begin: Callable[..., Delivering]) -> None:
    made = begin()
    made.run.announce(0, text(100))
    made.forward(0, 0, 20)
    made.forward(0, 30, 70)
    made.run.ends(0)
    (failure,) = made.run.collect(SOON)["failed"]
    assert failure["kind"] == "IncompleteSampleError"
    assert failure["text"].startswith("sample 0: rows 20 to 29 of 100 were never computed (10 missing)"), failure
    assert made.files() == []


def test_a_request_that_ends_without_a_row_fails(begin: Callable[..., Delivering]) -> None:
    made = begin()
    made.run.announce(0, text(5))
    made.run.ends(0)
    assert [row["kind"] for row in made.run.collect(SOON)["failed"]] == ["IncompleteSampleError"]


@pytest.mark.parametrize(("flag", "said"), [(NOT_FINITE, "is not finite"), (EMPTY, "is empty")])
def test_a_bad_row_fails_its_sample_alone_and_is_named(
    begin: Callable[..., Delivering], flag: int, said: str
) -> None:
    made = begin()
    made.run.announce(0, text(150))
    made.forward(0, 0, 50)
    made.forward(0, 50, 100, flags={2 * 90 + 1: flag})  # The second layer of row 90 of these.
    made.run.ends(0)
    made.sample(1, 10)
    got = made.run.collect(SOON)
    (failure,) = got["failed"]
    assert (failure["kind"], failure["index"]) == ("DamagedStatesError", 0)
    assert failure["text"].startswith(f"sample 0: row 140 of 150 {said}"), failure
    assert "after layer 3" in failure["text"], failure
    assert [row["index"] for row in got["delivered"]] == [1]
    assert made.files() == ["1.safetensors"]


class Meeting(Connector):
    """One in which whoever finishes a file waits for a second one that does."""

    def __init__(self, *, copies: bool) -> None:
        self.copies = copies
        self.met = 0
        self._meet = threading.Barrier(2)

    def finish(self, partial: Path, final: Path, form: Form, text: Text) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            self._meet.wait(0.2 if self.copies else SOON)
            self.met += 1
        super().finish(partial, final, form, text)


@pytest.mark.parametrize(("copies", "met"), [(True, 0), (False, 2)])
def test_a_layout_that_copies_samples_finishes_one_at_a_time(
    begin: Callable[..., Delivering], copies: bool, met: int
) -> None:
    layout = Meeting(copies=copies)
    made = begin(layout=layout, threads=2)
    made.sample(0, 10)
    made.sample(1, 10)
    assert len(made.run.collect(SOON)["delivered"]) == 2
    assert layout.met == met


def test_other_ids_than_the_jobs_fail_the_sample(begin: Callable[..., Delivering]) -> None:
    made = begin()
    made.run.announce(0, text(10))
    made.run.begins(0, text(10, index=1).token_ids)
    made.forward(0, 0, 10)
    made.run.ends(0)
    got = made.run.collect(SOON)
    assert [row["kind"] for row in got["failed"]] == ["IncompleteSampleError"]
    assert "other token ids" in got["failed"][0]["text"]
    assert (got["delivered"], made.files()) == ([], [])


def test_a_full_disk_stops_the_run_and_says_what_is_needed(begin: Callable[..., Delivering], tmp_path: Path) -> None:
    """/dev/full takes nothing, as a full disk does. What is whole stays, nothing half written does."""
    made = begin(memory=4 * PAGE)
    made.sample(0, 10)
    made.run.collect(SOON)
    (tmp_path / "1.safetensors.partial").symlink_to("/dev/full")
    for index in range(1, 40):  # Far more than the ring holds: who waited for room would wait for good.
        made.sample(index, 60)
    (failure,) = made.run.collect(SOON)["failed"]
    assert (failure["kind"], failure["index"]) == ("DeliveryError", 1)
    assert f"cannot write to {tmp_path}: No space left on device" in failure["text"]
    assert f"needs {PAGE + 60 * FORM.row_bytes:,} bytes and" in failure["text"], failure
    assert "Free space or give another folder" in failure["text"]
    made.run.close()
    assert "0.safetensors" in made.files()
    assert [name for name in made.files() if name.endswith(".partial")] == []


def test_a_folder_that_is_gone_stops_the_run(begin: Callable[..., Delivering], tmp_path: Path) -> None:
    made = begin()
    tmp_path.rmdir()
    made.sample(0, 10)
    made.sample(1, 10)
    (failure,) = made.run.collect(SOON)["failed"]
    assert failure["kind"] == "DeliveryError"
    assert "Put the folder back or give another one" in failure["text"], failure
    tmp_path.mkdir()


def test_a_name_that_cannot_be_taken_stops_the_run(begin: Callable[..., Delivering], tmp_path: Path) -> None:
    (tmp_path / "0.safetensors").mkdir()
    made = begin()
    made.sample(0, 10)
    (failure,) = made.run.collect(SOON)["failed"]
    assert failure["kind"] == "DeliveryError"
    assert "Is a directory" in failure["text"], failure
    assert made.files() == ["0.safetensors"]


LIMITED = """
import resource, sys
from pathlib import Path
from delivering import Delivering
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
made = Delivering(Path(sys.argv[1]))
made.sample(0, 50)
made.sample(1, 150)
print(made.run.collect(10.0)["failed"][0]["text"])
made.run.close()
print(made.files())
"""


def test_a_file_that_may_not_grow_so_far_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    said, files = done.stdout.splitlines()
    assert "File too large" in said, said
    assert "ulimit -f" in said, said
    assert "1.safetensors.partial" not in files, files
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 8192


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "Free space"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "may be written"),
        (errno.EROFS, "may be written"),
        (errno.EIO, "disk"),
        (errno.EBUSY, "See to it that the folder can be written"),
    ],
)
def test_every_error_of_the_file_system_has_advice(tmp_path: Path, number: int, advice: str) -> None:
    said = why_not_written(OSError(number, os.strerror(number)), tmp_path, 12345)
    assert said.startswith(f"cannot write to {tmp_path}: {os.strerror(number)}."), said
    assert advice in said, said
    assert ("12,345 bytes" in said) == (number in (errno.ENOSPC, errno.EDQUOT)), said


def test_an_error_that_nobody_foresaw_stops_the_run_and_is_told(begin: Callable[..., Delivering]) -> None:
    def ready() -> None:
        raise RuntimeError("the device is gone")

    made = begin()
    made.run.announce(0, text(10))
    made.forward(0, 0, 10, ready=ready)
    (failure,) = made.run.collect(SOON)["failed"]
    assert failure["text"].startswith("sample 0: RuntimeError: the device is gone"), failure
    assert made.files() == []


def test_one_thread_waits_for_copies_in_turn(begin: Callable[..., Delivering]) -> None:
    """Where each waits for its own, there is more for the forward's thread to wait for."""
    made = begin(threads=4)
    waiting: list[str] = []
    turn: list[int] = []

    def ready(index: int) -> None:
        waiting.append(threading.current_thread().name)
        time.sleep(0.005)
        turn.append(index)

    for index in range(12):
        made.run.announce(index, text(10, index))
        made.forward(index, 0, 10, ready=partial(ready, index))
    assert len(made.run.collect(SOON)["delivered"]) == 12
    assert set(waiting) == {"harness-writer-arrivals"}, waiting
    assert turn == list(range(12)), turn


def test_the_forward_waits_when_the_ring_is_full_and_goes_on_when_a_writer_is_done(
    begin: Callable[..., Delivering],
) -> None:
    made = begin(memory=4 * PAGE, threads=2)
    gate = threading.Event()
    for index in range(6):
        made.run.announce(index, text(60, index))

    def forwards() -> None:
        for index in range(6):
            made.forward(index, 0, 60, ready=lambda: held(gate))

    forward = threading.Thread(target=forwards)
    forward.start()
    forward.join(0.1)
    assert forward.is_alive(), "four pieces fill the ring, and no writer may go on"
    gate.set()
    forward.join(SOON)
    assert not forward.is_alive()
    got = made.run.collect(SOON)
    assert len(got["delivered"]) == 6, got
    assert got["stalled"] > 0.0
    assert made.run.collect(0.0)["stalled"] == 0.0, "told once"


def test_closing_ends_a_forward_that_waits_and_leaves_no_partial_file(begin: Callable[..., Delivering]) -> None:
    made = begin(memory=4 * PAGE, threads=1)
    gate = threading.Event()
    for index in range(8):
        made.run.announce(index, text(60, index))

    def forwards() -> None:
        for index in range(8):
            made.forward(index, 0, 60, ready=lambda: held(gate))

    forward = threading.Thread(target=forwards)
    forward.start()
    time.sleep(0.05)
    closing = threading.Thread(target=made.run.close)
    closing.start()
    forward.join(SOON)
    assert not forward.is_alive(), "closing frees who waits for room, also while a copy is still on its way"
    gate.set()
    closing.join(SOON)
    assert not closing.is_alive()
    assert [name for name in made.files() if name.endswith(".partial")] == []


def _closes(made: Delivering) -> bool:
    """Whether closing comes to its end."""
    closing = threading.Thread(target=made.run.close)
    closing.start()
    closing.join(SOON / 2)
    return not closing.is_alive()


def test_closing_does_not_wait_for_good_for_writes_that_hang(
    begin: Callable[..., Delivering], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "JOIN_SECONDS", 0.1)
    made = begin(threads=8)
    gate = threading.Event()
    writing = threading.Semaphore(0)

    def write(_sample: Sample, _start: int, _rows: memoryview) -> None:
        writing.release()
        held(gate)

    monkeypatch.setattr(Sample, "write", write)
    for index in range(8):
        made.run.announce(index, text(10, index))
        made.forward(index, 0, 10)
    for _thread in range(8):
        assert writing.acquire(timeout=SOON)
    assert _closes(made), "eight threads hang, and are left behind together"
    gate.set()


def test_closing_does_not_wait_for_good_for_a_copy_that_hangs(
    begin: Callable[..., Delivering], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "JOIN_SECONDS", 0.1)
    made = begin(threads=8)
    gate = threading.Event()
    made.sample(0, 10)
    assert len(made.run.collect(SOON)["delivered"]) == 1
    made.run.announce(1, text(10, 1))
    made.forward(1, 0, 10, ready=lambda: held(gate))
    assert _closes(made)
    gate.set()


def test_samples_of_nobody_are_left_alone(begin: Callable[..., Delivering]) -> None:
    made = begin()
    made.forward(5, 0, 10)
    made.run.ends(5)
    assert made.run.collect(SOON)["failed"] == []
    assert made.files() == []


def test_a_ring_too_small_for_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give the ring more memory"):
        Delivering(tmp_path, memory=PAGE, piece=8)
