"""The sound client that serves a recording: real worker processes, which answer with what ours answered.

It is held to the snapshots of the release that was recorded, and to its Hugging Face reference, by the same cases.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.clients.contract import EngineSpec, Sample, check_prompts, check_spec, match_recordings
from harness.clients.failures import translated

from . import recording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from harness.arrays import Array

RANKS = 2
_FORK = multiprocessing.get_context("fork")


@cache
def recorded() -> recording.Recording:
    return recording.read()


def states_of(prompt: list[int]) -> dict[int, Array]:
    """What was recorded of a prompt of any set."""
    kept = recorded()
    every = [known for members in kept.sets.values() for known in members]
    return kept.states[every.index(prompt)]


class Worker:
    """One rank: what `harness.worker` answers, out of the recording."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.requests: dict[str, list[int]] = {}
        self.last: list[list[int]] = []

    def run(self, requests: dict[str, list[int]]) -> None:
        """One forward of these requests."""
        self.requests |= requests
        self.last = list(requests.values())

    def states(self, prompt: list[int]) -> dict[int, Array]:
        return states_of(prompt)

    def harness_identity(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "rank": self.rank, **recorded().identity}

    def harness_take(self) -> list[dict[str, Any]] | None:
        taken, self.requests = self.requests, {}
        if self.rank:
            return None
        return [
            {"request_id": name, "token_ids": prompt, "missing": [], "states": self.states(prompt)}
            for name, prompt in taken.items()
        ]

    def harness_forget(self) -> None:
        self.last = []

    def harness_tensors(self) -> list[Array] | None:
        prompts = [self.states(prompt) for prompt in self.last]
        if not prompts:
            return None
        return [np.concatenate([states[layer] for states in prompts]) for layer in sorted(prompts[0])]


class Workers:
    """The processes of an engine, a rank each."""

    def __init__(self, kind: type[Worker], size: int, timeout: float) -> None:
        self.timeout = timeout
        self._connections: list[Connection] = []
        self.processes = []
        for rank in range(size):
            ours, theirs = _FORK.Pipe()
            process = _FORK.Process(target=_serve, args=(theirs, kind, rank), daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self.processes.append(process)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes if process.pid is not None]

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """What every rank replies, in rank order.

        Raises:
            CaptureError: as `translated` says.
        """
        with translated(self.pids):
            try:
                for connection in self._connections:
                    connection.send((method, arguments))
                return [self._reply(connection) for connection in self._connections]
            except (EOFError, ConnectionError):
                # Pipes close a moment before their process has ended, and that is what tells a death from a failure.
                closed = wait([process.sentinel for process in self.processes], self.timeout)
                for process in self.processes:
                    if process.sentinel in closed:
                        process.join(self.timeout)
                raise

    def _reply(self, connection: Connection) -> Any:
        if not connection.poll(self.timeout):
            raise TimeoutError
        error, reply = connection.recv()
        if error:
            raise RuntimeError(error)
        return reply

    def close(self) -> None:
        """Tell them to end: closing a pipe does not, as every fork holds a copy of it."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.send(None)
            connection.close()
        for process in self.processes:
            process.join(self.timeout)


def _serve(connection: Connection, kind: type[Worker], rank: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = kind(rank)
    while True:
        call = connection.recv()
        if call is None:
            return
        method, arguments = call
        try:
            answer = ("", getattr(worker, method)(*arguments))
        except Exception as error:  # noqa: BLE001 - told to who asked.
            answer = (f"{type(error).__name__}: {error}", None)
        connection.send(answer)


class RecordedEngine:
    """An engine on `Workers`; a fault changes the one or the other."""

    worker: ClassVar[type[Worker]] = Worker

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.numbers = itertools.count()
        self.workers = Workers(self.worker, spec.ranks, spec.timeout)

    def check(self, prompts: Sequence[Sequence[int]]) -> None:
        check_prompts(self.spec, prompts)

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        self.check(prompts)
        self.workers.call("run", {f"capture-{next(self.numbers)}": list(prompt) for prompt in prompts})
        return self.samples(prompts, self.workers.call("harness_take"))

    def samples(self, prompts: Sequence[Sequence[int]], replies: list[Any]) -> list[Sample]:
        return [
            Sample(
                token_ids=list(found["token_ids"]),
                states={layer: found["states"][layer] for layer in self.spec.layers},
            )
            for found in match_recordings(prompts, replies[0])
        ]

    def identities(self) -> list[dict[str, Any]]:
        return self.workers.call("harness_identity")

    def rpc(self, method: str, *, unique_reply_rank: int | None = None) -> Any:
        replies = self.workers.call(method)
        return replies if unique_reply_rank is None else replies[unique_reply_rank]

    def rpc_one(self, method: str, rank: int) -> Any:
        return self.rpc(method, unique_reply_rank=rank)

    def steps(self, prompts: Sequence[Sequence[int]], *, skip: int) -> list[dict[str, str]]:
        return recorded().steps[skip]

    def close(self) -> None:
        self.workers.close()


@dataclass(frozen=True)
class RecordedClient:
    """Opens an engine of one kind; a sound one checks its spec."""

    engine: Callable[[EngineSpec], RecordedEngine] = RecordedEngine
    check: Callable[[EngineSpec], None] = check_spec
    name: str = "recorded"

    def refuses(self, spec: EngineSpec) -> str | None:
        tensor_parallel = spec.tensor_parallel_size == spec.ranks == RANKS
        if spec.executor_backend != "mp" or spec.engine_core_process or not tensor_parallel:
            return "was recorded with the multiprocess executor and two tensor-parallel ranks"
        return None

    def open(self, spec: EngineSpec) -> RecordedEngine:
        self.check(spec)
        return self.engine(spec)


sound = RecordedClient()
