from __future__ import annotations

import logging
import os

import pytest

from harness.drills import WAYS, Drills


class Worker(Drills):
    """As much of a worker as the drills look at."""

    rank = 1


@pytest.fixture
def worker(caplog: pytest.LogCaptureFixture) -> Worker:
    caplog.set_level(logging.INFO)
    return Worker()


def test_one_rank_says_it_in_every_way(
    worker: Worker, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    worker.harness_say(1, "a word")
    said = capfd.readouterr()
    assert (said.out, said.err) == ("a word: print\n", "a word: stderr\n")
    logged = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert logged == [
        ("harness_drills", "INFO", "a word: logging info"),
        ("harness_drills", "WARNING", "a word: logging warning"),
        ("vllm.harness_drills", "INFO", "a word: vllm info"),
        ("vllm.harness_drills", "WARNING", "a word: vllm warning"),
    ]
    assert [message for _name, _level, message in logged] == [f"a word: {way}" for way in WAYS[2:]]


def test_other_ranks_are_silent(
    worker: Worker, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    worker.harness_say(0, "a word")
    worker.harness_hang(0, 60.0, "a word")
    said = capfd.readouterr()
    assert (said.out, said.err, caplog.records) == ("", "", [])


def test_only_the_given_ranks_raise(worker: Worker) -> None:
    assert worker.harness_raise([0, 2], "a word") == "a word"
    with pytest.raises(RuntimeError, match=r"^a word$"):
        worker.harness_raise([1], "a word")


def test_who_hangs_says_so_first(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    worker.harness_hang(1, 0.0, "a word")
    assert capfd.readouterr().err == f"harness rank 1 pid {os.getpid()} INFO: a word\n"
