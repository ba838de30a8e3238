"""0.11.0: ``execute_model`` runs the forward and samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .base import Adapter, kind

if TYPE_CHECKING:
    from collections.abc import Sequence


class SinglePhase(Adapter):
    generation: ClassVar[str] = "single-phase"

    def run(self, scheduled: Any) -> Any:
        return self.executor.execute_model(scheduled)

    def protocol(self, requests: Sequence[tuple[str, list[int]]], *, skip: int) -> list[dict[str, str]]:
        """There is no second phase to leave out, so ``skip`` changes nothing."""
        records = []
        for request_id, prompt in requests:
            self.add(request_id, prompt)
            scheduled = self.scheduler.schedule()
            output = self.run(scheduled)
            records.append({"execute_model": kind(output), "sample_tokens": "absent"})
            self.scheduler.update_from_output(scheduled, output)
        while self.busy():
            self.step()
        return records
