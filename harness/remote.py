"""An engine in a process of its own, called from here with a limit on every wait."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import processes
from .errors import CAPTURE_ERRORS, ReplyTimeoutError, WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .clients.contract import EngineSpec, Sample

BOOT_TIMEOUT = 240.0
CLOSE_TIMEOUT = 30.0
# What the host gets beyond the spec's own limit, so that the client's error comes first: half as much again, and no
# more than this.
MARGIN = 15.0
# How much of a stream is read back: a boot says less than a tenth of it.
LOG_BYTES = 4 * 2**20

# In the names of the segments of vLLM's CPU communicator (distributed/device_communicators/cpu_communicator.py).
VLLM_LEAVES = "cpushm"


def patience(limit: float) -> float:
    """How long a call may take whose replies are due within a limit, in seconds."""
    return limit + min(MARGIN, limit / 2)


class RemoteEngine:
    """A client's engine, hosted. Everything the host starts is in one session, which `close` ends."""

    def __init__(
        self,
        client: str,
        spec: EngineSpec,
        *,
        log: Path,
        variables: Mapping[str, str],
        held: Sequence[int] = (),
        temporary: Path | None = None,
    ) -> None:
        """Start the host process; `open` boots the engine.

        Args:
            client: a name or ``module:attribute``, as `clients.load` takes it.
            spec: what to open.
            log: where the host's and the workers' output goes: ``x.log`` stands for ``x.stdout.log`` and
                ``x.stderr.log``.
            variables: the release's environment variables; what the user has set wins.
            held: descriptors that the host keeps open until everything that it started has ended.
            temporary: where its processes put temporary files: vLLM leaves sockets and rendezvous files there.
        """
        self.spec = spec
        self.logs = {stream: log.with_suffix(f".{stream}.log") for stream in ("stdout", "stderr")}
        self.timings: dict[str, float] = {}
        self.repairs: list[str] = []
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._connection = Connection(ours.detach())
        self._started = time.monotonic()
        with self.logs["stdout"].open("wb") as stdout, self.logs["stderr"].open("wb") as stderr:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-u", "-m", "harness.host", client),
                    *(str(theirs.fileno()), str(lifeline)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**variables, **processes.own_variables(), **({"TMPDIR": str(temporary)} if temporary else {})},
                pass_fds=(theirs.fileno(), lifeline, *held),
                start_new_session=True,
            )
        theirs.close()
        os.close(lifeline)
        self.pid = self._process.pid
        self.closed = False
        self._segments: set[str] = set()
        # What closing left in /dev/shm, known once it is closed.
        self.left_segments: list[str] = []
        # For whoever has to end this session if we cannot.
        self._mark = log.with_name(f"{self.pid}.pid")
        self._mark.touch()

    def open(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Boot.

        Raises:
            CaptureError: what the client raised, or `ReplyTimeoutError`, `WorkerDiedError`.
        """
        try:
            self.timings.update(self.ask("open", self.spec, timeout=timeout))
            self.repairs = self.ask("repairs", timeout=MARGIN)
            self._note_segments()
        except Exception:
            self.close()
            raise
        except BaseException:  # Interrupted: the host is in the middle of a boot, and hears of nothing.
            self.end()
            raise
        self.timings["boot"] = time.monotonic() - self._started

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        samples: list[Sample] = self.call("capture", [list(prompt) for prompt in prompts])
        return samples

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the engine, within the spec's limit and a margin."""
        return self.ask("call", method, *arguments, timeout=patience(self.spec.timeout), **named)

    def begin(self, method: str, *arguments: Any, **named: Any) -> Callable[[], Any]:
        """Have the engine work on a call while the caller does something else.

        Returns:
            What waits for the answer, as `call` does. Nothing else may be asked before.
        """
        self._send("call", (method, *arguments), named)
        return lambda: self._answer(f"call {(method,)}", patience(self.spec.timeout))

    def ask(self, operation: str, *arguments: Any, timeout: float, **named: Any) -> Any:
        """Have the host do something.

        Raises:
            ReplyTimeoutError: no answer in time; the host is ended, its stacks are in the log.
            WorkerDiedError: the host ended.
            CaptureError: what the client raised.
        """
        self._send(operation, arguments, named)
        return self._answer(f"{operation} {arguments[:1]}", timeout)

    def _send(self, operation: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        with self._alive(operation):
            self._connection.send_bytes(pickle.dumps((operation, arguments, named)))

    def _answer(self, asked: str, timeout: float) -> Any:
        with self._alive(asked):
            if not self._connection.poll(timeout):
                self._dump_stacks()
                self.end()
                raise ReplyTimeoutError(
                    f"no answer to {asked} within {timeout:g} s; the engine was ended. Where it hung is at the end "
                    f"of {self.logs['stderr']}."
                )
            status, answer = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - from our own host.
        if status == "error":
            name, text = answer
            raise CAPTURE_ERRORS[name](text)
        return answer

    @contextlib.contextmanager
    def _alive(self, asked: str) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            code = self._process.wait(CLOSE_TIMEOUT)
            self.end()
            raise WorkerDiedError(
                f"the engine's process ended in {asked} (exit code {code}). Its last words:\n{self.tail()}"
            ) from error

    def tail(self, lines: int = 15) -> str:
        """The end of what the host and its workers said, a stream after the other."""
        said = {stream: self._read(stream).splitlines()[-lines:] for stream in self.logs}
        return "\n".join(line for stream, end in said.items() for line in (f"[{stream}]", *end) if end)

    def heard(self, word: str) -> list[str]:
        """The lines that hold a word, ``stdout: ...`` or ``stderr: ...``, of the last `LOG_BYTES` of each."""
        return [
            f"{stream}: {line}" for stream in self.logs for line in self._read(stream).splitlines() if word in line
        ]

    def _read(self, stream: str) -> str:
        with contextlib.suppress(OSError), self.logs[stream].open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_BYTES))
            return log.read(LOG_BYTES).decode(errors="replace")
        return ""

    def _dump_stacks(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)

    def close(self) -> list[int]:
        """Close in order, then make sure, also if that is interrupted.

        Returns:
            The processes that closing left behind and that had to be killed: empty for a sound client.
        """
        if self.closed:
            return []
        try:
            self._close_in_order()
        finally:
            left = self.end()
        return left

    def _close_in_order(self) -> None:
        self._note_segments()
        if self._process.poll() is None:
            try:
                self._connection.send_bytes(pickle.dumps(("close", (), {})))
                deadline = time.monotonic() + CLOSE_TIMEOUT
                # Until it ends: the first answer may be that of a call whose caller has left.
                while self._connection.poll(max(0.0, deadline - time.monotonic())):
                    self._connection.recv_bytes()
                self._dump_stacks()
            except (EOFError, OSError):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(5.0)
            self._settle()

    def _note_segments(self) -> None:
        """Remember what the session has mapped: a worker that dies later cannot tell.

        vLLM's CPU communicator leaves its segments even when it ends in order (csrc/cpu/shm.cpp, 0.32.0): they are
        removed, and are not the client's fault.
        """
        self._segments |= processes.segments(processes.of_session(self.pid))

    def _settle(self, patience: float = 3.0) -> None:
        """Processes that were told to end get a moment: what counts as left behind is what stays."""
        deadline = time.monotonic() + patience
        while processes.of_session(self.pid) and time.monotonic() < deadline:
            time.sleep(0.02)

    def end(self) -> list[int]:
        """End the session now. Also right after a failure, in any state."""
        if self.closed:
            return []
        self.closed = True
        left = processes.end_session(self.pid)
        for path in self._segments:
            if not left and Path(path).exists() and VLLM_LEAVES not in path:
                self.left_segments.append(path)
            Path(path).unlink(missing_ok=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._connection.close()
        os.close(self._lifeline)
        self._mark.unlink(missing_ok=True)
        return left
