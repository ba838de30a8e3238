"""What the harness itself says in the workers: seen on every release, whatever vLLM does to logging and streams.

This module is imported by worker processes, so it imports the standard library only.
"""

from __future__ import annotations

import logging
import os

STDERR = 2


class _Descriptor(logging.Handler):
    """Writes a record in one piece, past ``sys.stderr``.

    vLLM puts a prefix of its own into that object's ``write`` (utils/system_utils.py, 0.16.0), in pieces that the
    workers' lines then share, and a worker's streams are buffered until they are flushed.
    """

    def emit(self, record: logging.LogRecord) -> None:
        os.write(STDERR, f"{self.format(record)}\n".encode(errors="replace"))


def line_start(rank: int, pid: int | str) -> str:
    """How the lines of one worker begin."""
    return f"harness rank {rank} pid {pid}"


def logger(rank: int) -> logging.Logger:
    """The harness's logger of a rank, in this process; its lines name both, and go to standard error."""
    named = logging.getLogger(f"harness.worker.{rank}")
    if not any(isinstance(handler, _Descriptor) for handler in named.handlers):
        handler = _Descriptor()
        handler.setFormatter(logging.Formatter(f"{line_start(rank, '%(process)d')} %(levelname)s: %(message)s"))
        named.addHandler(handler)
        named.setLevel(logging.INFO)
        named.propagate = False  # Nobody else's handlers or level: they differ from release to release.
    return named
