"""Since 0.11.1: ``execute_model`` runs the forward and gives None, and ``sample_tokens`` is owed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .base import Adapter, kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class TwoPhase(Adapter):
    generation: ClassVar[str] = "two-phase"

    def run(self, scheduled: Any) -> Any:
        """Both phases. A batch without tokens has no second one: ``execute_model`` then gives the output."""
        output = self.executor.execute_model(scheduled)
        return self.executor.sample_tokens(None) if output is None else output

    def begin(self, scheduled: Any) -> Callable[[], Any]:
        """As `Adapter.begin`. Both phases are asked for, and worker processes take them in turn.

        Nothing is under way in the process itself, where a call runs while it is made; and through Ray, whose
        compiled graph runs in a thread of its own in each worker (`_compiled_ray_dag`, v1/executor/ray_executor.py,
        0.11.1 to 0.32.0): what a client asks of workers would come into a batch.
        """
        if self.spec.executor_backend != "mp":
            return super().begin(scheduled)
        forward = self.executor.execute_model(scheduled, non_block=True)
        if not scheduled.total_num_scheduled_tokens:
            given: Callable[[], Any] = forward.result
            return given
        sampled = self.executor.sample_tokens(None, non_block=True)

        def output() -> Any:
            forward.result()  # Raises what the forward did; the second phase only knows that there was none.
            return sampled.result()

        return output

    def begin_rpc(self, method: str, arguments: tuple[Any, ...]) -> Callable[[], list[Any]]:
        """As `Adapter.begin_rpc`; worker processes are not waited for."""
        if self.spec.executor_backend != "mp":
            return super().begin_rpc(method, arguments)
        called = self.executor.collective_rpc(method, timeout=self.spec.timeout, args=arguments, non_block=True)
        replies: Callable[[], list[Any]] = called.result
        return replies

    def protocol(self, requests: Sequence[tuple[str, list[int]]], *, skip: int) -> list[dict[str, str]]:
        records: list[dict[str, str]] = []
        owed: list[Any] = []  # The batches whose second phase was left out.
        failed: list[Any] = []
        for number, (request_id, prompt) in enumerate(requests):
            self.add(request_id, prompt)
            scheduled = self.scheduler.schedule()
            try:
                output = self.executor.execute_model(scheduled)
            except Exception as error:  # noqa: BLE001 - what it raises is what the case wants to see.
                records.append({"execute_model": _said(error), "sample_tokens": "not reached"})
                failed.append(scheduled)
                continue
            record = {"execute_model": kind(output)}
            if number < skip:
                record["sample_tokens"] = "skipped"
                owed.append(scheduled)
            else:
                sampled = self.executor.sample_tokens(None) if output is None else output
                record["sample_tokens"] = kind(sampled)
                self.scheduler.update_from_output(scheduled, sampled)
            records.append(record)
        self._settle(owed, failed)
        return records

    def _settle(self, owed: list[Any], failed: list[Any]) -> None:
        """Pay the phases that were left out, the last one first, then run the batches that were blocked.

        Model runner V2 blocks none: it forgets the batch that was owed when the next one comes, says nothing, and
        gives None when asked for it (v1/worker/gpu/model_runner.py:1398, 0.26.0). Those requests cannot go on.
        """
        for scheduled in reversed(owed):
            output = self.executor.sample_tokens(None)
            if output is None:
                self.abort(list(scheduled.num_scheduled_tokens))
            else:
                self.scheduler.update_from_output(scheduled, output)
        for scheduled in failed:
            self.scheduler.update_from_output(scheduled, self.run(scheduled))
        while self.busy():
            self.step()


def _said(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    state = "State error: sample_tokens() must be called after execute_model() returns None."
    return f"{type(error).__name__}: {state}" if state in text else text
