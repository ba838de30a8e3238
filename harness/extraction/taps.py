"""Hooks on decoder layers that leave what they see in the staging tensors, and file it by request and position.

This module is imported by worker processes: the standard library and torch only.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from harness.decoder import decoder_stack, loaded_model
from harness.worker import Activity, Span, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .run import Run
    from .staging import Memory, Staging


@dataclass(slots=True)
class Request:
    """A request that the runner knows: the length of its prompt, and how far it has come."""

    length: int
    end: int = 0


class Part(NamedTuple):
    """Rows of a sample among those that were taken: positions ``start`` on, ``row`` the first."""

    sample: int
    start: int
    row: int
    rows: int


class Taps:
    """What one worker captures: every forward into the staging tensors, and from there what the open run asks for.

    A forward's rows are copied while the next one runs. Were they copied at once, the token that the step has to
    deliver would wait behind them on its way from the device.

    ``last`` are the states of the last forward, ``[tokens, hidden_size]`` a layer: views, good until the next ones.
    """

    def __init__(self, runner: Any, layers: Sequence[int], staging: Staging) -> None:
        self.runner = runner
        self.activity = Activity()
        self.last: dict[int, torch.Tensor] = {}
        self._layers = tuple(layers)
        self._staging = staging
        self._requests: dict[str, Request] = {}
        self._prefix = ""
        self._run: Run | None = None
        self._memory: Memory | None = None
        self._owner = (0, 1)
        self._parts: list[Part] = []  # Of the rows that were taken last.
        self._rows = 0  # Of the forward that runs, 0 in between.
        stack = decoder_stack(loaded_model(runner))
        for place, layer in enumerate(self._layers):
            stack.layers[layer].register_forward_hook(partial(self._capture, place, layer))
        self._execute_model = runner.execute_model
        runner.execute_model = self.execute_model

    def attach(self, number: int, run: Run, memory: Memory, owner: tuple[int, int]) -> None:
        """From now on, samples of this run whose index modulo the second number is the first go into it."""
        self._prefix = f"extract-{number}-"  # As the driver names requests: `ExtractEngine._name`.
        self._run, self._memory, self._owner = run, memory, owner

    def detach(self) -> None:
        self._run = self._memory = None
        self._parts = []

    def _capture(self, place: int, layer: int, _module: Any, _inputs: Any, output: Any) -> None:
        if not self._rows:  # Warm-up and profiling forwards do not come through `execute_model`.
            return
        hidden, residual = output if isinstance(output, tuple) else (output, None)
        into = self._staging.layer(place, self._rows)
        if residual is None:
            into.copy_(hidden[: self._rows])
        else:
            torch.add(hidden[: self._rows], residual[: self._rows], out=into)
        self.last[layer] = into

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        rows = self._rows = scheduler_output.total_num_scheduled_tokens
        if rows:
            self.last = {}
        try:
            result = self._execute_model(scheduler_output, *args, **kwargs)
        finally:
            self._rows = 0
        self.flush()
        if rows:
            self._begin(scheduler_output.scheduled_new_reqs)
            parts = self._file(spans(self.runner, scheduler_output), scheduler_output)
            if parts:
                self._staging.take(rows)
                self._parts = parts  # Not before: rows that were not looked at may not be copied.
        self._end(scheduler_output.finished_req_ids)
        return result

    def flush(self) -> None:
        """Have the rows of the last forward copied; waits while there is no room for them."""
        parts, self._parts = self._parts, []
        run, memory = self._run, self._memory
        if run is None or memory is None:
            return
        for part in parts:

            def copy(first: int, rows: int, place: int, row: int = part.row) -> Callable[[], None]:
                return self._staging.copy(memory, row + first, rows, place)

            run.submit(part.sample, part.start, part.rows, copy)

    def _index(self, request: str) -> int | None:
        """Which sample of the open run that is, if this rank writes it."""
        if self._run is None or not request.startswith(self._prefix):
            return None
        index = int(request.removeprefix(self._prefix))
        return index if index % self._owner[1] == self._owner[0] else None

    def _begin(self, requests: Iterable[Any]) -> None:
        for request in requests:
            if request.req_id in self._requests:  # Preempted, and begun again.
                continue
            self._requests[request.req_id] = Request(len(request.prompt_token_ids))
            index = self._index(request.req_id)
            if index is not None and self._run is not None:
                self._run.begins(index, array("q", request.prompt_token_ids).tobytes())

    def _file(self, batch: list[Span], scheduler_output: Any) -> list[Part]:
        """What of the last forward is to be copied."""
        parts: list[Part] = []
        self.activity.forwards += 1
        self.activity.reordered += [span.request for span in batch] != list(scheduler_output.num_scheduled_tokens)
        for span in batch:
            request = self._requests.get(span.request)
            if request is None:
                continue
            stop = min(span.start + span.rows, request.length)  # Rows past the prompt are of generated tokens.
            if span.start >= stop:
                continue
            self.activity.cut += stop < request.length
            self.activity.resumed += span.start < request.end
            request.end = stop
            index = self._index(span.request)
            if index is not None and self._passed(index):
                parts.append(Part(index, span.start, span.row, stop - span.start))
        return parts

    def _passed(self, index: int) -> bool:
        """The last forward went through every hook; if not, the sample is refused."""
        without = [layer for layer in self._layers if layer not in self.last]
        if without and self._run is not None:
            self._run.refuse(
                index,
                "IncompleteSampleError",
                f"its forward did not go through the hooks on layers {without}: something compiled or replaced the "
                f"decoder layers after the model was loaded. Run `harness check` on this model kind.",
            )
        return not without

    def _end(self, requests: Iterable[str]) -> None:
        for request in requests:
            self._requests.pop(request, None)
            index = self._index(request)
            if index is not None and self._run is not None:
                self._run.ends(index)
