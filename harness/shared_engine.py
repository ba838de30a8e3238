"""One group's engine, as its cases share it: a capture made once, and what a case may ask of an engine."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from .arrays import TOLERANCES
from .errors import CaptureError, ClientError, NotApplicableError
from .findings import expect
from .remote import BOOT_TIMEOUT, RemoteEngine, patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .clients.contract import EngineSpec, Sample
    from .run import Run
    from .settings import Group

# A client that does not refuse boots a second engine.
REFUSAL_TIMEOUT = 120.0


@contextlib.contextmanager
def _must_apply(what: str) -> Iterator[None]:
    """A client that gets out of the very thing that it is for has not conformed: `ClientError`."""
    try:
        yield
    except NotApplicableError as error:
        raise ClientError(f"{what} may not be told as not applicable: {error}") from error


class SharedEngine(RemoteEngine):
    """One group's engine, and the capture that its cases share."""

    def __init__(self, group: Group, run: Run) -> None:
        # Ours alone: what a checkpoint brings as code is copied there, and by no lock.
        modules = {"HF_MODULES_CACHE": f"{run.work}/modules/{group.name}"}
        super().__init__(
            *(group.client, run.spec(group)),
            log=run.logs / f"{group.name}.log",
            variables={**run.variables, **modules},
        )
        self.group = group
        self._captured: list[Sample] | None = None
        self._allowed: float | None = None
        self.left_behind: list[int] | None = None

    @property
    def tolerance(self) -> float:
        """How far states may be apart that ought to be equal, as a part of the largest value."""
        return TOLERANCES[self.spec.dtype] if self._allowed is None else self._allowed

    @contextlib.contextmanager
    def tolerating(self, allowed: float) -> Iterator[None]:
        """With another tolerance."""
        self._allowed = allowed
        try:
            yield
        finally:
            self._allowed = None

    def open(self, timeout: float = BOOT_TIMEOUT) -> None:
        with _must_apply("opening an engine of a setting that it does not refuse"):
            super().open(timeout)

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        with _must_apply("a capture"):
            return super().capture(prompts)

    def shared_capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        """All prompts in one call, captured once."""
        if self._captured is None:
            self._captured = self.capture(prompts)
        return self._captured

    def activity(self) -> dict[str, int] | None:
        """What the first rank did since the last call, if the client's engine can tell."""
        if not self.ask("offers", "activity", timeout=30.0):
            return None
        activity: dict[str, int] = self.call("activity")
        return activity

    def happened(self, count: str, at_least: int, *, what: str, cause: str, advice: str) -> None:
        """The engine did get, since the last `activity`, into the situation that a case is about, if it can tell.

        Args:
            count: a field of `harness.worker.Activity`.
            at_least: how often.
            what: the situation, and the finding's ``cause`` and ``advice`` where it did not happen.
            cause: why the case then proves nothing.
            advice: where to look.
        """
        activity = self.activity()
        if activity is not None:
            expect(activity[count] >= at_least, expected=what, got=str(activity), cause=cause, advice=advice)

    def capture_and_go_on(self, prompts: list[list[int]], others: list[list[int]]) -> list[Sample]:
        """The samples of one capture, as they are after several further ones."""
        samples: list[Sample] = self.ask(
            "capture_and_go_on", prompts, others, timeout=4 * patience(self.spec.timeout)
        )
        return samples

    def offer(self, method: str) -> None:
        """Raise `NotApplicableError` if the client's engine has no such method."""
        if not self.ask("offers", method, timeout=30.0):
            raise NotApplicableError(f"client {self.group.client} does not expose {method}()")

    def open_refused(self, spec: EngineSpec, refusal: type[CaptureError]) -> str:
        """Empty if opening another engine is refused as it should be; else what happened instead."""
        try:
            self.ask("open_another", spec, timeout=REFUSAL_TIMEOUT)
        except refusal:
            return ""
        except CaptureError as error:
            return f"{type(error).__name__}: {error}"
        return "an engine that opened"

    def close(self) -> list[int]:
        if self.left_behind is None:
            self.left_behind = super().close()
        return self.left_behind
