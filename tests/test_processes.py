from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from multiprocessing import shared_memory
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from harness import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[..., subprocess.Popen[str]]

READY = "print('ready', flush=True); import signal; signal.pause()"
# Nobody but the harness may unlink the segment.
SEGMENT = """
from multiprocessing import resource_tracker, shared_memory
segment = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister("/" + segment.name, "shared_memory")
print(segment.name, flush=True)
import signal; signal.pause()
"""
WITH_CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SEGMENT!r}], stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline().strip(), flush=True)
import signal; signal.pause()
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code as the leader of a session, and wait for its first line."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str = READY) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()  # Also where what is tested here does not end it.
        processes.end_session(process.pid)
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_session_is_found_with_its_children(start: Start) -> None:
    leader = start(WITH_CHILD)
    child = int(_line(leader).split()[0])
    # The child's resource tracker is a third.
    assert {leader.pid, child} <= set(processes.of_session(leader.pid))
    assert os.getpid() not in processes.of_session(leader.pid)


def test_ending_a_session_kills_it_and_says_whom(start: Start) -> None:
    leader = start(WITH_CHILD)
    child = int(_line(leader).split()[0])
    killed = processes.end_session(leader.pid)
    assert {leader.pid, child} <= set(killed)
    assert processes.of_session(leader.pid) == []
    assert processes.ended([leader.pid, child]) == [leader.pid, child]


def test_ending_unlinks_the_segments_of_the_killed(start: Start) -> None:
    leader = start(WITH_CHILD)
    child, name = _line(leader).split()
    path = f"/dev/shm/{name}"  # noqa: S108
    assert processes.segments([int(child)]) == {path}
    assert processes.segments([leader.pid]) == set()
    processes.end_session(leader.pid)
    assert not os.path.exists(path)  # noqa: PTH110


def test_segment_of_another_session_stays(start: Start) -> None:
    segment = shared_memory.SharedMemory(create=True, size=64)
    try:
        leader = start(SEGMENT)
        _line(leader)
        processes.end_session(leader.pid)
        assert os.path.exists(f"/dev/shm/{segment.name}")  # noqa: PTH110, S108
    finally:
        segment.close()
        segment.unlink()


def test_session_ends_also_when_its_leader_is_gone(start: Start) -> None:
    leader = start(WITH_CHILD)
    child = int(_line(leader).split()[0])
    leader.kill()
    leader.wait()
    assert child in processes.of_session(leader.pid)
    assert child in processes.end_session(leader.pid)
    assert processes.ended([child]) == [child]


def test_spared_process_lives_and_its_segments_go(start: Start) -> None:
    leader = start(f"{SEGMENT.replace('import signal; signal.pause()', '')}{WITH_CHILD}")
    own = _line(leader)
    child, others = _line(leader).split()
    killed = processes.end_session(leader.pid, spare=leader.pid)
    assert leader.pid not in killed
    assert int(child) in killed
    assert leader.poll() is None
    left = [name for name in (own, others) if os.path.exists(f"/dev/shm/{name}")]  # noqa: PTH110, S108
    assert left == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("during", ["_signal", "segments", "wait_ended", "of_session"])
def test_interrupt_at_any_step_of_ending_comes_after_the_end(
    start: Start, monkeypatch: pytest.MonkeyPatch, during: str, number: signal.Signals
) -> None:
    leader = start(WITH_CHILD)
    child, name = _line(leader).split()
    step = getattr(processes, during)

    def interrupted(*arguments: Any) -> Any:
        for _again in range(2):
            os.kill(os.getpid(), number)
        return step(*arguments)

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(processes, during, interrupted)
            with pytest.raises(KeyboardInterrupt):
                processes.end_session(leader.pid)
        assert signal.getsignal(number) is interrupt
    finally:
        signal.signal(number, before)
    assert processes.ended([leader.pid, int(child)]) == [leader.pid, int(child)]
    assert not os.path.exists(f"/dev/shm/{name}"), name  # noqa: PTH110, S108


@pytest.mark.parametrize("raised", [OSError, MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("during", ["segments", "wait_ended"])
def test_whatever_is_raised_none_stays_stopped_and_known_segments_go(
    start: Start, monkeypatch: pytest.MonkeyPatch, during: str, raised: type[BaseException]
) -> None:
    leader = start(WITH_CHILD)
    child, name = _line(leader).split()

    def fail(*_arguments: object) -> NoReturn:
        raise raised

    with monkeypatch.context() as patched:
        patched.setattr(processes, during, fail)
        with pytest.raises(raised):
            processes.end_session(leader.pid)
    processes.wait_ended([leader.pid, int(child)], 30.0)
    assert processes.ended([leader.pid, int(child)]) == [leader.pid, int(child)]
    left = os.path.exists(f"/dev/shm/{name}")  # noqa: PTH110, S108
    assert left is (during == "segments"), name
    if left:
        os.unlink(f"/dev/shm/{name}")  # noqa: PTH108, S108


def test_ending_in_another_thread_leaves_the_handlers_alone(start: Start) -> None:
    process = start()
    assert _line(process) == "ready"
    thread = threading.Thread(target=processes.end_session, args=[process.pid])
    thread.start()
    thread.join()
    assert processes.ended([process.pid]) == [process.pid]


@pytest.mark.parametrize("name", ["a) S (b", "two words", ") Z 1 1 1 ("])
def test_name_with_spaces_and_parentheses(start: Start, name: str) -> None:
    process = start(f"open('/proc/self/comm', 'w').write({name!r}); {READY}")
    assert _line(process) == "ready"
    assert processes.of_session(process.pid) == [process.pid]
    assert processes.end_session(process.pid) == [process.pid]


def test_zombie_has_ended(start: Start) -> None:
    process = start("")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert processes.of_session(process.pid) == []
    assert processes.ended([process.pid]) == [process.pid]
    assert processes.end_session(process.pid) == []


def test_stopped_process_runs_and_is_killed(start: Start) -> None:
    process = start(f"import os, signal; print('ready', flush=True); os.kill(os.getpid(), signal.SIGSTOP); {READY}")
    assert _line(process) == "ready"
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert processes.ended([process.pid]) == []
    assert processes.end_session(process.pid) == [process.pid]


def test_process_that_ignores_signals_is_killed(start: Start) -> None:
    process = start(f"import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]; {READY}")
    assert _line(process) == "ready"
    assert processes.end_session(process.pid) == [process.pid]


def test_waiting_ends_with_the_last_process(start: Start) -> None:
    process = start("input()")
    process.kill()
    processes.wait_ended([process.pid], 30.0)
    assert processes.ended([process.pid]) == [process.pid]


def test_waiting_is_bounded() -> None:
    processes.wait_ended([os.getpid()], 0.05)
    assert processes.ended([os.getpid()]) == []


def test_pid_that_was_never_there_has_ended() -> None:
    assert processes.ended([2**22 + 1]) == [2**22 + 1]
    assert processes.segments([2**22 + 1]) == set()


def test_children_get_nothing_that_ties_them_to_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", "kept")
    for name in ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(name, "ours")
    assert "ours" not in processes.child_variables().values()
    assert processes.child_variables()["HARNESS_ENVIRONMENTS"] == "kept"


def test_engines_keep_their_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", "kept")
    assert "PYTHONDONTWRITEBYTECODE" not in processes.own_variables()
    assert processes.own_variables()["PYTHONPATH"] == "kept"
