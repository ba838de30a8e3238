from __future__ import annotations

import os
from typing import NoReturn

import pytest

from harness.worker_calls import NumberedCalls


class Worker(NumberedCalls):
    rank = 1

    def add(self, one: int, other: int) -> int:
        return one + other

    def fail(self) -> NoReturn:
        raise KeyError("layer")

    def leave(self) -> NoReturn:
        raise SystemExit


def test_reply_carries_the_number_of_the_call() -> None:
    assert Worker().harness_call(7, "add", [1, 2]) == {"number": 7, "reply": 3}


def test_error_is_a_reply_and_its_traceback_is_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    assert Worker().harness_call(8, "fail", []) == {"number": 8, "error": "KeyError: 'layer'"}
    said = capfd.readouterr().err
    assert said.startswith(f"harness rank 1 pid {os.getpid()} ERROR: fail raised\nTraceback"), said


def test_method_that_is_not_there_is_an_error() -> None:
    reply = Worker().harness_call(9, "absent", [])
    assert reply["error"].startswith("AttributeError: "), reply


def test_a_worker_that_is_told_to_end_ends() -> None:
    with pytest.raises(SystemExit):
        Worker().harness_call(10, "leave", [])
