"""The process that an engine lives in: it opens a client's engine and does what it is asked, one call at a time.

``python -m harness.host CLIENT CALLS_FD LIFELINE_FD``. Calls and answers are pickled messages on a socket pair
that only the parent and this process hold. The lifeline is a pipe that the parent never writes to: when it
closes, the parent is gone, and this process takes everything that it started down with it.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import pickle
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from . import clients, processes
from .errors import CAPTURE_ERRORS, CaptureError

if TYPE_CHECKING:
    from .clients.contract import Client, EngineSpec

NICENESS = 10


class Host:
    """One client, and the engine it has open."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.engine: Any = None

    def open(self, spec: EngineSpec) -> dict[str, float]:
        """Open the engine.

        Returns:
            ``{"open": seconds}``
        """
        start = time.monotonic()
        self.engine = self.client.open(spec)
        return {"open": time.monotonic() - start}

    def open_another(self, spec: EngineSpec) -> None:
        """Open an engine beside the one that is up, and close it: for specs that must be refused."""
        self.client.open(spec).close()

    def rehearse(self, spec: EngineSpec, prompts: list[list[int]]) -> None:
        """Open an engine beside the one that is up, capture twice, and close it: what cannot be done is raised."""
        engine = self.client.open(spec)
        try:
            for _again in range(2):
                engine.capture(prompts)
        finally:
            engine.close()

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the engine."""
        return getattr(self.engine, method)(*arguments, **named)

    def capture_and_go_on(self, prompts: list[list[int]], others: list[list[int]]) -> Any:
        """The samples of one capture, sent only after further ones: as many as there may be buffers to take turns."""
        samples = self.engine.capture(prompts)
        for _further in range(3):
            self.engine.capture(others)
        return samples

    def offers(self, method: str) -> bool:
        return hasattr(self.engine, method)

    def patch(self, module: str, name: str, attribute: str) -> None:
        """Set an attribute on a class, as this process has it."""
        setattr(getattr(importlib.import_module(module), name), attribute, True)

    def repairs(self) -> list[str]:
        """What the engine says was changed or stood in for, so that it runs here."""
        return list(getattr(self.engine, "repairs", ()))

    def close(self) -> None:
        if self.engine is not None:
            engine, self.engine = self.engine, None
            engine.close()


def _answer(host: Host, message: tuple[str, tuple[Any, ...], dict[str, Any]]) -> tuple[str, Any]:
    operation, arguments, named = message
    try:
        return "ok", getattr(host, operation)(*arguments, **named)
    except Exception as error:  # noqa: BLE001 - whatever a client raises goes to the case that asked.
        traceback.print_exc()
        name = type(error).__name__
        if isinstance(error, CaptureError) and name in CAPTURE_ERRORS:
            return "error", (name, str(error))
        return "error", ("ClientError", f"{name}: {error}")


def _pickled(answer: tuple[str, Any]) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as error:  # noqa: BLE001 - what cannot be sent must not end the host.
        return pickle.dumps(("error", ("ClientError", f"the answer cannot be sent: {type(error).__name__}: {error}")))


def main(arguments: list[str]) -> None:
    name, calls, lifeline = arguments
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # ^C goes to the parent, which then closes the engine in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    follower = processes.follow(int(lifeline))
    # Workers that wait for a call spin (distributed/device_communicators/shm_broadcast.py): not at the cost of
    # who makes the calls.
    os.nice(NICENESS)
    connection = Connection(int(calls))
    host = Host(clients.load(name))
    while True:
        try:
            message = pickle.loads(connection.recv_bytes())  # noqa: S301 - from our parent, on our own socket.
            connection.send_bytes(_pickled(_answer(host, message)))
        except (EOFError, OSError):
            # The parent is gone. Ending here would cut off who takes down what was started.
            follower.join()
            break
        if message[0] == "close":
            break
    sys.stdout.flush()
    sys.stderr.flush()
    # Not through interpreter shutdown: vLLM's and torch's exit handlers may wait for peers that are gone.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
