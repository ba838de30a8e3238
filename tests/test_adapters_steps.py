"""How an adapter steps: one batch or several under way, in one phase or two."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import fake_engine
import pytest
from fake_engine import SPEC, STATE_ERROR, Batch, Executor, ModelRunnerOutput

from harness import adapters
from harness.adapters.ahead import Ahead

if TYPE_CHECKING:
    from harness.adapters.base import Adapter
    from harness.clients.contract import ExecutorBackend

boot = fake_engine.boot


@pytest.mark.parametrize("name", adapters.GENERATIONS)
def test_steps_run_every_request_and_tell_of_the_finished(boot: Any, name: str) -> None:
    adapter, _calls = boot(name)
    for number in range(3):
        adapter.add(f"r{number}", [5, 6])
    while adapter.busy():
        adapter.step()
    assert adapter.executor.served == ["r0", "r1", "r2"]
    assert not adapter.executor.owed


@pytest.mark.parametrize("name", adapters.GENERATIONS)
def test_batches_ahead_run_every_request_and_tell_of_the_finished(boot: Any, name: str) -> None:
    adapter, _calls = boot(name)
    ahead = Ahead(adapter)
    for number in range(3):
        adapter.add(f"r{number}", [5, 6])
        ahead.step()
    while ahead.busy():
        ahead.step()
    assert adapter.executor.served == ["r0", "r1", "r2"]
    assert not adapter.executor.owed


class Waiting(Executor):
    """Gives what is not there yet, and says what is waited for; ``fails`` is a phase that raises."""

    fails = ""

    def execute_model(self, scheduled: list[str], *, non_block: bool = False) -> Any:
        return self._later("forward", super().execute_model(scheduled), non_block)

    def sample_tokens(self, grammar: None, *, non_block: bool = False) -> Any:
        return self._later("sampled", super().sample_tokens(grammar), non_block)

    def collective_rpc(self, method: str, *, non_block: bool = False, **named: Any) -> Any:
        return self._later(method, super().collective_rpc(method, **named), non_block)

    def _later(self, phase: str, given: Any, non_block: bool) -> Any:
        self.calls.append(phase)

        def result() -> Any:
            self.calls.append(f"wait for {phase}")
            if phase == self.fails:
                raise ValueError(f"{phase} failed")
            return given

        return SimpleNamespace(result=result) if non_block else given


def _waiting(boot: Any, backend: ExecutorBackend = "mp") -> tuple[Adapter, Waiting, list[str]]:
    adapter, calls = boot("two-phase", spec=replace(SPEC, executor_backend=backend))
    executor = Waiting(adapter.executor.has, calls)
    adapter.executor = executor
    calls.clear()
    return adapter, executor, calls


def test_both_phases_are_asked_for_before_one_is_waited_for(boot: Any) -> None:
    adapter, _executor, calls = _waiting(boot)
    output = adapter.begin(Batch(["r0"]))
    assert calls == ["forward", "sampled"]
    assert isinstance(output(), ModelRunnerOutput)
    assert calls[2:] == ["wait for forward", "wait for sampled"]


def test_a_batch_without_tokens_has_no_second_phase(boot: Any) -> None:
    adapter, _executor, calls = _waiting(boot)
    assert isinstance(adapter.begin(Batch())(), ModelRunnerOutput)
    assert calls == ["forward", "wait for forward"]


def test_what_a_forward_raised_is_not_hidden_by_the_second_phase(boot: Any) -> None:
    adapter, executor, calls = _waiting(boot)
    executor.fails = "forward"
    output = adapter.begin(Batch(["r0"]))
    with pytest.raises(ValueError, match="forward failed"):
        output()
    assert "wait for sampled" not in calls


@pytest.mark.parametrize("backend", ["ray", "uni"])
def test_nothing_is_under_way_but_in_worker_processes(boot: Any, backend: ExecutorBackend) -> None:
    adapter, _executor, calls = _waiting(boot, backend)
    output = adapter.begin(Batch(["r0"]))
    assert calls == ["forward", "sampled"]
    assert isinstance(output(), ModelRunnerOutput)
    assert calls == ["forward", "sampled"], "it was waited for before"


def test_a_call_that_worker_processes_are_not_waited_for(boot: Any) -> None:
    adapter, _executor, calls = _waiting(boot)
    replies = adapter.begin_rpc("harness_identity", (1, 2))
    assert calls == ["harness_identity"]
    assert replies() == [("harness_identity", rank, 1, 2) for rank in (0, 1)]
    assert calls[1:] == ["wait for harness_identity"]


@pytest.mark.parametrize("backend", ["ray", "uni"])
def test_a_call_that_is_waited_for_where_nothing_is_under_way(boot: Any, backend: ExecutorBackend) -> None:
    adapter, _executor, calls = _waiting(boot, backend)
    replies = adapter.begin_rpc("harness_identity", (1, 2))
    assert replies() == [("harness_identity", rank, 1, 2) for rank in (0, 1)]
    assert calls == ["harness_identity"]


def test_a_call_in_one_phase_is_waited_for(boot: Any) -> None:
    adapter, _calls = boot("single-phase")
    assert adapter.begin_rpc("harness_identity", ())() == [("harness_identity", rank) for rank in (0, 1)]


REQUESTS = [("r0", [5]), ("r1", [6]), ("r2", [7])]
SOUND = {"execute_model": "None", "sample_tokens": "ModelRunnerOutput"}
SKIPPED = {"execute_model": "None", "sample_tokens": "skipped"}
BLOCKED = {"execute_model": f"RuntimeError: {STATE_ERROR}", "sample_tokens": "not reached"}


@pytest.mark.parametrize(
    ("skip", "records"),
    [(0, [SOUND, SOUND, SOUND]), (1, [SKIPPED, BLOCKED, BLOCKED]), (2, [SKIPPED, BLOCKED, BLOCKED])],
)
@pytest.mark.parametrize("name", ["two-phase", "negotiated-layout"])
def test_a_phase_that_is_owed_blocks_the_next_step_and_is_paid_in_the_end(
    boot: Any, name: str, skip: int, records: list[dict[str, str]]
) -> None:
    adapter, _calls = boot(name)
    assert adapter.protocol(REQUESTS, skip=skip) == records
    assert not adapter.executor.owed
    assert not adapter.busy()
    assert sorted(adapter.executor.served) == ["r0", "r1", "r2"]


class Forgetful(Executor):
    """As model runner V2: a batch that is owed is forgotten when the next one comes."""

    def execute_model(self, scheduled: list[str], *, non_block: bool = False) -> Any:
        self.owed = False
        return super().execute_model(scheduled, non_block=non_block)

    def sample_tokens(self, grammar: None, *, non_block: bool = False) -> Any:
        return super().sample_tokens(grammar, non_block=non_block) if self.owed else None


@pytest.mark.parametrize(
    ("skip", "records", "lost"),
    [
        (0, [SOUND, SOUND, SOUND], []),
        (1, [SKIPPED, SOUND, SOUND], ["r0"]),
        (2, [SKIPPED, SKIPPED, SOUND], ["r1", "r0"]),
        (3, [SKIPPED, SKIPPED, SKIPPED], ["r1", "r0"]),
    ],
)
def test_batches_that_the_runner_forgets_are_given_up_and_the_engine_is_free(
    boot: Any, skip: int, records: list[dict[str, str]], lost: list[str]
) -> None:
    adapter, calls = boot("two-phase")
    adapter.executor = Forgetful(adapter.executor.has, calls)
    assert adapter.protocol(REQUESTS, skip=skip) == records
    assert adapter.scheduler.aborted == lost
    assert not adapter.busy(), f"still running: {adapter.scheduler.running}"


@pytest.mark.parametrize("skip", [0, 2])
def test_a_single_phase_owes_nothing(boot: Any, skip: int) -> None:
    adapter, _calls = boot("single-phase")
    records = adapter.protocol(REQUESTS, skip=skip)
    assert records == [{"execute_model": "ModelRunnerOutput", "sample_tokens": "absent"}] * 3
    assert not adapter.busy()
