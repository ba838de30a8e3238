from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import pytest

from harness import worker_log

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def rank() -> Iterator[int]:
    yield 7
    named = logging.getLogger("harness.worker.7")
    named.handlers[:] = [handler for handler in named.handlers if not isinstance(handler, worker_log._Descriptor)]


def test_line_names_rank_and_process_and_goes_to_standard_error(rank: int, capfd: pytest.CaptureFixture[str]) -> None:
    worker_log.logger(rank).info("hooks on layers %s", [4, 0])
    said = capfd.readouterr()
    assert said.err == f"harness rank 7 pid {os.getpid()} INFO: hooks on layers [4, 0]\n"
    assert said.out == ""


def test_neither_streams_nor_levels_of_others_matter(
    rank: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(logging.getLogger(), "level", logging.CRITICAL)
    worker_log.logger(rank).warning("seen")
    assert capfd.readouterr().err.endswith(" WARNING: seen\n")


def test_asked_for_twice_it_speaks_once(rank: int, capfd: pytest.CaptureFixture[str]) -> None:
    worker_log.logger(rank)
    worker_log.logger(rank).info("once")
    assert capfd.readouterr().err.count("once") == 1


def test_error_carries_its_traceback(rank: int, capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> NoReturn:
        raise ZeroDivisionError("by zero")

    try:
        fail()
    except ZeroDivisionError:
        worker_log.logger(rank).exception("harness_take raised")
    said = capfd.readouterr().err
    assert said.startswith(worker_log.line_start(7, os.getpid())), said
    assert "Traceback" in said, said
    assert "ZeroDivisionError: by zero" in said, said
