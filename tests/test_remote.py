from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import toys as toy_clients

from harness import processes
from harness.clients.contract import EngineSpec
from harness.errors import ClientError, InvalidLayerError, ReplyTimeoutError, WorkerDiedError
from harness.remote import RemoteEngine, patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Host = Callable[[str], RemoteEngine]

pytestmark = pytest.mark.usefixtures("toys")
SPEC = EngineSpec(model="/nowhere", layers=(4, 0), timeout=5.0)

PARENT = """
import json, pathlib, sys
from harness.clients.contract import EngineSpec
from harness.remote import RemoteEngine

engine = RemoteEngine(
    "toys:LEAVING", EngineSpec(model="/nowhere", layers=(0,)), log=pathlib.Path(sys.argv[1]), variables={}
)
engine.open()
print(json.dumps(engine.call("facts")), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with contextlib.ExitStack() as stack:

        def start(client: str) -> RemoteEngine:
            engine = RemoteEngine(client, SPEC, log=tmp_path / f"{client}.log", variables={})
            stack.callback(engine.end)
            return engine

        yield start


def _gone(facts: dict[str, Any]) -> None:
    assert sorted(processes.ended(facts["pids"])) == sorted(facts["pids"]), facts
    assert [path for path in facts["segments"] if Path(path).exists()] == [], facts


def test_sound_client_gives_its_samples_and_leaves_nothing(host: Host) -> None:
    engine = host("toys:WITH_CHILD")
    engine.open()
    facts = engine.call("facts")
    assert facts["pids"][0] == engine.pid
    first, second = engine.capture([(5, 6, 7), [8]])
    assert (first.token_ids, second.token_ids) == ([5, 6, 7], [8])
    assert list(first.states) == [4, 0]
    assert first.states[4] == toy_clients.Rows((3, 8))
    assert set(engine.timings) == {"open", "boot"}
    assert engine.close() == []
    _gone(facts)
    assert engine.close() == []


@pytest.mark.parametrize(
    ("client", "repairs"), [("toys:REPAIRED", ["a wheel is square", "a door is open"]), ("toys:SOUND", [])]
)
def test_what_an_engine_repaired_is_known_once_it_is_open(host: Host, client: str, repairs: list[str]) -> None:
    engine = host(client)
    engine.open()
    assert engine.repairs == repairs


def test_host_runs_in_a_session_of_its_own(host: Host) -> None:
    engine = host("toys:SOUND")
    engine.open()
    assert os.getsid(engine.pid) == engine.pid != os.getsid(0)


def test_interrupt_from_the_terminal_is_the_parents(host: Host) -> None:
    engine = host("toys:SOUND")
    engine.open()
    os.kill(engine.pid, signal.SIGINT)
    assert len(engine.capture([[5]])) == 1


def test_releases_variables_reach_the_host_and_the_users_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_TOY_USER", "the user's")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    variables = {"HARNESS_TOY_ROW": "the row's", "HARNESS_TOY_USER": "the row's"}
    engine = RemoteEngine("toys:SOUND", SPEC, log=tmp_path / "log", variables=variables)
    try:
        engine.open()  # It answers: until it has started, its environment reads as empty.
        environ = Path(f"/proc/{engine.pid}/environ").read_bytes().split(b"\0")
        assert b"HARNESS_TOY_ROW=the row's" in environ
        assert b"HARNESS_TOY_USER=the user's" in environ
        assert b"PYTHONDONTWRITEBYTECODE=1" not in environ
    finally:
        engine.end()


def test_what_is_held_is_let_go_of_when_all_has_ended(tmp_path: Path) -> None:
    """Also where the parent has let go of it before: a lock outlives a parent that is killed, and no process."""
    path = tmp_path / "lock"
    with path.open("w") as ours:
        fcntl.flock(ours, fcntl.LOCK_EX)
        engine = RemoteEngine("toys:WITH_CHILD", SPEC, log=tmp_path / "log", variables={}, held=(ours.fileno(),))
    engine.open()
    with path.open("w") as theirs:
        with pytest.raises(BlockingIOError):
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        engine.close()
        fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_interrupted_boot_is_ended_at_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing in order would wait for an answer of a host that is busy booting."""

    def interrupt(*_arguments: Any, **_named: Any) -> None:
        raise KeyboardInterrupt

    engine = host("toys:SOUND")
    monkeypatch.setattr(engine, "ask", interrupt)
    monkeypatch.setattr(engine, "close", lambda: pytest.fail("closed in order"))
    with pytest.raises(KeyboardInterrupt):
        engine.open()
    assert processes.ended([engine.pid]) == [engine.pid]


def test_capture_error_is_the_same_class_here_and_ends_the_host(host: Host) -> None:
    engine = host("toys:REFUSING")
    with pytest.raises(InvalidLayerError, match=r"^layer 9 does not exist$"):
        engine.open()
    assert processes.ended([engine.pid]) == [engine.pid]


def test_any_other_error_is_the_clients(host: Host) -> None:
    engine = host("toys:FAILING")
    with pytest.raises(ClientError, match=r"^ZeroDivisionError: by zero$"):
        engine.open()
    assert "Traceback" in engine.tail(100)


def test_capture_error_of_the_clients_own_is_the_clients(host: Host) -> None:
    engine = host("toys:RAISING")
    engine.open()
    with pytest.raises(ClientError, match=r"^UnlistedError: not on the list$"):
        engine.capture([[5]])
    assert engine.ask("offers", "facts", timeout=10.0) is True


def test_answer_that_cannot_be_sent_is_the_clients(host: Host) -> None:
    engine = host("toys:UNSENDABLE")
    engine.open()
    with pytest.raises(ClientError, match="the answer cannot be sent"):
        engine.capture([[5]])
    assert engine.call("facts")["pids"] == [engine.pid]


def test_method_that_the_engine_lacks_is_not_offered(host: Host) -> None:
    engine = host("toys:SOUND")
    engine.open()
    assert engine.ask("offers", "steps", timeout=10.0) is False
    with pytest.raises(ClientError, match="AttributeError"):
        engine.call("steps")


def test_another_engine_is_opened_and_closed_beside_it(host: Host) -> None:
    engine = host("toys:WITH_CHILD")
    engine.open()
    before = set(processes.of_session(engine.pid))
    engine.ask("open_another", SPEC, timeout=30.0)
    assert set(processes.of_session(engine.pid)) == before


def test_reply_that_never_comes_ends_the_host_and_shows_where_it_hung(host: Host) -> None:
    engine = host("toys:HANGING")
    engine.open()
    facts = engine.call("facts")
    start = time.monotonic()
    with pytest.raises(ReplyTimeoutError, match=r"no answer to call .*capture.* within 0\.2 s") as caught:
        engine.ask("call", "capture", [[5]], timeout=0.2)
    assert time.monotonic() - start < 15.0
    assert str(engine.logs["stderr"]) in str(caught.value), caught.value
    log = engine.logs["stderr"].read_text(encoding="utf-8")
    assert "Thread 0x" in log, log
    assert "in capture" in log, log
    _gone(facts)


def test_caller_goes_on_while_a_call_is_worked_on(host: Host) -> None:
    engine = host("toys:SOUND")
    engine.open()
    answer = engine.begin("capture", [[5], [6]])
    assert [sample.token_ids for sample in answer()] == [[5], [6]]
    assert [sample.token_ids for sample in engine.capture([[7]])] == [[7]]


def test_call_whose_answer_nobody_waits_for_is_no_reason_not_to_close_in_order(host: Host) -> None:
    engine = host("toys:WITH_CHILD")
    engine.open()
    facts = engine.call("facts")
    engine.begin("capture", [[5], [6]])
    assert engine.close() == []
    _gone(facts)


def test_host_that_exits_is_a_death_with_its_code_and_last_words(host: Host) -> None:
    engine = host("toys:EXITING")
    engine.open()
    facts = engine.call("facts")
    with pytest.raises(WorkerDiedError) as caught:
        engine.capture([[5]])
    assert f"exit code {toy_clients.EXIT_CODE}" in str(caught.value), caught.value
    assert toy_clients.LAST_WORDS in str(caught.value), caught.value
    _gone(facts)


def test_each_stream_has_its_own_log_and_is_heard(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = host("toys:SPEAKING")
    engine.open()
    assert engine.call("say", "one word") is None
    assert engine.heard("one word") == ["stdout: one word on stdout", "stderr: one word on stderr"]
    assert engine.heard("another word") == []
    assert engine.tail(1) == "[stdout]\none word on stdout\n[stderr]\none word on stderr"
    monkeypatch.setattr("harness.remote.LOG_BYTES", len("on stdout\n"))
    assert engine.heard("on ") == ["stdout: on stdout", "stderr: on stderr"]
    assert engine.heard("word") == []


def test_stream_that_nothing_went_through_is_left_out_of_the_end(host: Host) -> None:
    engine = host("toys:SOUND")
    engine.open()
    assert engine.tail() == ""


def test_patch_is_made_in_the_hosts_process_only(host: Host) -> None:
    engine = host("toys:SPEAKING")
    engine.open()
    engine.ask("patch", "toys", "Speaking", "harness_patch", timeout=10.0)
    assert engine.ask("offers", "harness_patch", timeout=10.0) is True
    assert not hasattr(toy_clients.Speaking, "harness_patch")


def test_host_that_is_killed_is_a_death(host: Host) -> None:
    engine = host("toys:WITH_CHILD")
    engine.open()
    facts = engine.call("facts")
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="exit code -9"):
        engine.capture([[5]])
    _gone(facts)


def test_client_that_cannot_be_loaded_says_so(host: Host) -> None:
    engine = host("toys:NOTHING")
    with pytest.raises(WorkerDiedError, match="cannot be loaded"):
        engine.open()


def test_what_outlives_closing_is_told_and_killed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteEngine._settle, "__defaults__", (0.1,))
    engine = host("toys:LEAVING")
    engine.open()
    facts = engine.call("facts")
    child = facts["pids"][1]
    assert child in engine.close()
    _gone(facts)


def test_interrupt_while_it_closes_ends_what_does_not_close(host: Host) -> None:
    """A second ^C: the first one is why it closes. Nothing outlives the command that the user has given up on."""
    engine = host("toys:NEVER_CLOSING")
    engine.open()
    facts = engine.call("facts")

    def interrupt() -> None:
        while not engine.heard(toy_clients.LAST_WORDS):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job ignores it.
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        engine.close()
    _gone(facts)
    assert engine.close() == []


@pytest.mark.parametrize("step", ["_note_segments", "_dump_stacks", "_settle"])
def test_closing_that_is_broken_off_anywhere_ends_the_host(
    host: Host, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.remote.CLOSE_TIMEOUT", 0.1)
    engine = host("toys:NEVER_CLOSING")
    engine.open()
    facts = engine.call("facts")
    monkeypatch.setattr(engine, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.close()
    _gone(facts)


def test_mark_is_there_while_the_host_is(host: Host, tmp_path: Path) -> None:
    engine = host("toys:SOUND")
    assert [mark.name for mark in tmp_path.glob("*.pid")] == [f"{engine.pid}.pid"]
    engine.open()
    engine.close()
    assert list(tmp_path.glob("*.pid")) == []


def test_killed_parent_takes_the_host_its_children_and_its_segments_down(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    facts = json.loads(parent.stdout.readline())
    assert processes.ended(facts["pids"]) == []
    assert all(Path(path).exists() for path in facts["segments"])
    parent.kill()
    parent.communicate()
    processes.wait_ended(facts["pids"], 15.0)
    _gone(facts)


@pytest.mark.parametrize(("limit", "seconds"), [(60.0, 75.0), (30.0, 45.0), (10.0, 15.0), (2.0, 3.0)])
def test_a_call_gets_half_as_much_again_beyond_its_limit_and_15_s_at_most(limit: float, seconds: float) -> None:
    assert patience(limit) == seconds
