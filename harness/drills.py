"""What the suite has workers do on purpose: speak, raise, hang, and show what was patched.

Mixed into the extension beside the capture, so its rules hold: the standard library and torch only, and public names
that start with ``harness_``.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from . import worker_log

# The ways in which a worker may say something, in the order in which it does.
WAYS = ("print", "stderr", "logging info", "logging warning", "vllm info", "vllm warning")


class Drills:
    """Mixed into vLLM's worker class, with `worker.CaptureExtension`."""

    def harness_say(self, rank: int, word: str) -> None:
        """One rank says ``word: way`` in each of `WAYS`; flushed, so that the reply comes after the words."""
        worker: Any = self
        if worker.rank != rank:
            return
        plain = logging.getLogger("harness_drills")
        vllms = logging.getLogger("vllm.harness_drills")
        print(f"{word}: print")
        sys.stderr.write(f"{word}: stderr\n")
        plain.info("%s: logging info", word)
        plain.warning("%s: logging warning", word)
        vllms.info("%s: vllm info", word)
        vllms.warning("%s: vllm warning", word)
        sys.stdout.flush()
        sys.stderr.flush()

    def harness_raise(self, ranks: list[int], word: str) -> str:
        """Reply with a word, but on these ranks raise it.

        Raises:
            RuntimeError: on the given ranks.
        """
        worker: Any = self
        if worker.rank in ranks:
            raise RuntimeError(word)
        return word

    def harness_hang(self, rank: int, seconds: float, word: str) -> None:
        """One rank says the word, in the harness's own log, and then nothing for so long."""
        worker: Any = self
        if worker.rank == rank:
            worker_log.logger(rank).info(word)
            time.sleep(seconds)

    def harness_model_class(self) -> tuple[str, str]:
        """Module and name of the class of the model that this worker runs."""
        kind = self._harness_model_class()
        return kind.__module__, kind.__qualname__

    def harness_is_patched(self, attribute: str) -> bool:
        """Whether the class of the model, as this worker has it, carries an attribute."""
        return hasattr(self._harness_model_class(), attribute)

    def _harness_model_class(self) -> type[Any]:
        from .decoder import loaded_model

        worker: Any = self
        return type(loaded_model(worker.model_runner))
