"""Our own delivery with a part left out, to see what each part costs: the worker's side.

``dropped``: states are copied from the device and go no further. ``overwritten``: files of an earlier round are
written again, so the file system has their pages already. ``written``: as it is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from harness.extraction.extension import ExtractExtension
from harness.extraction.layouts import Connector
from harness.extraction.sample import Sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Study: TypeAlias = Literal["written", "dropped", "overwritten"]

_write, _finish = Sample.write, Connector.finish


def _drop(_sample: Sample, _start: int, _rows: memoryview) -> None:
    pass


def _name(_layout: Connector, _partial: Path, final: Path, *_rest: Any) -> None:
    final.touch()


def _overwrite(sample: Sample, start: int, rows: memoryview) -> None:
    # Its head is there already, of the same prompt. A sample is one piece here: no other thread opens it.
    if sample._descriptor is None and sample.final.exists():  # noqa: SLF001 - nobody else has a use for it.
        sample.final.replace(sample.partial)
        sample._descriptor = os.open(sample.partial, os.O_WRONLY)  # noqa: SLF001
    _write(sample, start, rows)


_STUDIES: dict[Study, tuple[Callable[..., None], Callable[..., None]]] = {
    "written": (_write, _finish),
    "dropped": (_drop, _name),
    "overwritten": (_overwrite, _finish),
}


class StudiedExtension(ExtractExtension):
    """Mixed into vLLM's worker class, as what it inherits from."""

    def bench_study(self, study: Study) -> None:
        """From the next sample on, in this worker."""
        write, finish = _STUDIES[study]
        setattr(Sample, "write", write)  # noqa: B010 - mypy takes no assignment to a method.
        setattr(Connector, "finish", finish)  # noqa: B010
