"""What a capture adds to a forward by itself, without vLLM: its hooks' work, and what is done beside the next one.

``python -m bench.capture DEVICE`` prints JSON, in seconds a forward that fills the budget.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

import torch

from harness.extraction.layouts import Form
from harness.extraction.staging import Staging

from .shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .shapes import Device, Shape

# Asked for in one go, so that the device does not wait for the next one to be asked for.
TOGETHER = 10
ROUNDS = 5


def seconds(work: Callable[[], None], device: Device) -> float:
    """What one call takes on the device, the median of some rounds after a first one."""
    took = []
    for _round in range(ROUNDS + 1):
        start = time.monotonic()
        for _call in range(TOGETHER):
            work()
        if device == "cuda":
            torch.cuda.synchronize()
        took.append((time.monotonic() - start) / TOGETHER)
    return median(took[1:])


def measure(shape: Shape, device: Device) -> dict[str, float]:
    """Seconds a forward: ``hooks``, which each one waits for, and ``taken``, which goes on beside the next one."""
    form = Form(layers=len(shape.layers), hidden_size=shape.hidden_size, dtype=shape.dtype)
    staging = Staging(tokens=shape.budget, form=form, device=torch.device(device))
    hidden, residual = torch.ones(
        (2, shape.budget, shape.hidden_size), dtype=getattr(torch, shape.dtype), device=device
    ).unbind()

    def hooks() -> None:
        for place in range(form.layers):
            torch.add(hidden, residual, out=staging.layer(place, shape.budget))

    def taken() -> None:
        staging.take(shape.budget)

    return {"hooks": round(seconds(hooks, device), 6), "taken": round(seconds(taken, device), 6)}


if __name__ == "__main__":
    chosen: Device = "cuda" if sys.argv[1] == "cuda" else "cpu"
    print(json.dumps(measure(SHAPES[chosen], chosen)))
