"""The workers' half of `clients.calls`: every call has a number, which the reply carries.

This module is imported by worker processes, so it imports the standard library only.
"""

from __future__ import annotations

from typing import Any

from . import worker_log


class NumberedCalls:
    """Mixed into vLLM's worker class, with `worker.CaptureExtension`."""

    def harness_call(self, number: int, method: str, arguments: list[Any]) -> dict[str, Any]:
        """Run a method, and give its reply or what it raised, with the number of the call.

        So a reply that belongs to another call is recognised, and an error of one rank is a reply like any other.
        """
        worker: Any = self
        try:
            return {"number": number, "reply": getattr(self, method)(*arguments)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must hear of it from this call.
            worker_log.logger(worker.rank).exception("%s raised", method)
            return {"number": number, "error": f"{type(error).__name__}: {error}"}
