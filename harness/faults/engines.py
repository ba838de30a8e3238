"""Recorded faults in how an engine behaves: each public name here is a client, and an entry of ``catalogue.toml``."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from multiprocessing import resource_tracker, shared_memory
from typing import TYPE_CHECKING, Any

from harness.errors import NotApplicableError, WorkerDiedError

from .changing import changed, in_buffers
from .recorded import RecordedClient, RecordedEngine, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.clients.contract import EngineSpec, Sample

# What is left of the call before.


class _Late(RecordedEngine):
    """Every call gives what the one before should have given."""

    before: list[Sample] | None = None

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        now = super().capture(prompts)
        late, self.before = self.before or now, now
        return late


class _StaleStates(_Late):
    """Right ids, and the states of the call before, wherever it had as many samples."""

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        stale = super().capture(prompts)
        assert self.before is not None
        if len(stale) != len(self.before):
            return self.before
        return [replace(one, states=other.states) for one, other in zip(self.before, stale, strict=True)]


class _Drifting(RecordedEngine):
    """Every further call is off by more: something is added up that should begin anew."""

    drift = -0.01

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        self.drift += 0.01
        return [changed(sample, lambda states: states + self.drift) for sample in super().capture(prompts)]


reply_late_by_one_call = RecordedClient(_Late)
states_of_the_previous_call = RecordedClient(_StaleStates)
buffer_used_by_the_next_call = in_buffers(1)
states_drift = RecordedClient(_Drifting)

# Replies and ranks.


class _OneListMore(RecordedEngine):
    def rpc(self, method: str, *, unique_reply_rank: int | None = None) -> Any:
        reply = super().rpc(method, unique_reply_rank=unique_reply_rank)
        return reply if unique_reply_rank is None else [reply]


class _OneListLess(RecordedEngine):
    def rpc(self, method: str, *, unique_reply_rank: int | None = None) -> Any:
        reply = super().rpc(method, unique_reply_rank=unique_reply_rank)
        return reply[0] if unique_reply_rank is None else reply


class _FirstOfABareReply(RecordedEngine):
    def rpc_one(self, method: str, rank: int) -> Any:
        reply = super().rpc_one(method, rank)
        return next(iter(reply.values())) if isinstance(reply, dict) else reply[0]


class _FirstRankForAll(RecordedEngine):
    def rpc_one(self, method: str, rank: int) -> Any:
        return super().rpc_one(method, 0)


class _EmptyForNothing(Worker):
    def harness_tensors(self) -> Any:
        return super().harness_tensors() or []


class _AnswersWithEmpty(RecordedEngine):
    worker = _EmptyForNothing


class _LosesTensors(RecordedEngine):
    def rpc(self, method: str, *, unique_reply_rank: int | None = None) -> Any:
        replies = super().rpc(method)
        return [[["float32", list(states.shape), 1] for states in reply] for reply in replies]


class _RanksReversed(RecordedEngine):
    def identities(self) -> list[dict[str, Any]]:
        return super().identities()[::-1]


class _RankMissing(RecordedEngine):
    def identities(self) -> list[dict[str, Any]]:
        return super().identities()[:1]


class _RunsInTheParent(RecordedEngine):
    def identities(self) -> list[dict[str, Any]]:
        return [{**identity, "pid": os.getpid()} for identity in super().identities()]


class _OtherBackend(RecordedEngine):
    def identities(self) -> list[dict[str, Any]]:
        return [{**identity, "backend": "ray"} for identity in super().identities()]


class _OnePhase(RecordedEngine):
    def steps(self, prompts: Sequence[Sequence[int]], *, skip: int) -> list[dict[str, str]]:
        return [{"execute_model": "ModelRunnerOutput", "sample_tokens": "absent"} for _prompt in prompts]


class _StepsLeaveTheirMark(_Drifting):
    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        if self.drift < 0:
            self.drift = 0.0
        return RecordedEngine.capture(self, prompts) if not self.drift else super().capture(prompts)

    def steps(self, prompts: Sequence[Sequence[int]], *, skip: int) -> list[dict[str, str]]:
        self.drift = 0.01
        return super().steps(prompts, skip=skip)


reply_one_list_deeper = RecordedClient(_OneListMore)
reply_one_list_less = RecordedClient(_OneListLess)
first_of_a_bare_reply = RecordedClient(_FirstOfABareReply)
first_rank_for_all = RecordedClient(_FirstRankForAll)
nothing_is_an_empty_list = RecordedClient(_AnswersWithEmpty)
tensors_lost_in_the_reply = RecordedClient(_LosesTensors)
ranks_reversed = RecordedClient(_RanksReversed)
rank_missing = RecordedClient(_RankMissing)
worker_runs_in_the_parent = RecordedClient(_RunsInTheParent)
other_backend = RecordedClient(_OtherBackend)
one_phase_instead_of_two = RecordedClient(_OnePhase)
steps_leave_their_mark = RecordedClient(_StepsLeaveTheirMark)

# The end.


class _KeepsItsDead(RecordedEngine):
    """Goes on with what it has when a worker has died."""

    kept: list[Sample] | None = None

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        try:
            self.kept = super().capture(prompts)
        except WorkerDiedError:
            return self.kept or []
        return self.kept


class _LosesTheCause(RecordedEngine):
    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        try:
            return super().capture(prompts)
        except WorkerDiedError as error:
            raise RuntimeError("Executor failed.") from error


class _LeavesAProcess(RecordedEngine):
    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


class _LeavesASegment(RecordedEngine):
    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.segment = shared_memory.SharedMemory(create=True, size=4096)
        # As one that C++ made: nobody else unlinks it.
        resource_tracker.unregister(f"/{self.segment.name}", "shared_memory")


class _NeverApplies(RecordedEngine):
    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        raise NotApplicableError("not today")


dead_worker_ignored = RecordedClient(_KeepsItsDead)
dead_worker_in_other_words = RecordedClient(_LosesTheCause)
leaked_process = RecordedClient(_LeavesAProcess)
leaked_segment = RecordedClient(_LeavesASegment)
capture_never_applies = RecordedClient(_NeverApplies)
