"""The extension that vLLM mixes into its workers: it captures, and says where it runs.

This module is imported by worker processes, so it and what it imports from here need the standard library and torch
only.
Every public name starts with ``harness_``: vLLM refuses an extension whose attributes a worker
already has (0.11.0 worker/worker_base.py, since 0.11.1 v1/worker/worker_base.py).
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from . import worker_log
from .decoder import decoder_stack, loaded_model
from .drills import Drills
from .inputs import Inputs
from .worker_calls import NumberedCalls

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Recording:
    """What one request's prefill left behind so far."""

    token_ids: list[int]
    rows: dict[int, torch.Tensor] = field(default_factory=dict)
    end: int = 0
    seen: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))


@dataclass
class Activity:
    """What the runner did with the requests, counted in forwards: proof that a case met what it is about.

    ``cut`` rows ended before their prompt did; ``resumed`` requests began again before where they had been;
    ``reordered`` batches were in another order than the scheduler's.
    """

    forwards: int = 0
    cut: int = 0
    resumed: int = 0
    reordered: int = 0


def batch_order(runner: Any, scheduled: dict[str, int]) -> list[str]:
    """The request ids in the order of the rows of the last forward.

    Not the order of scheduling: model runner V1 keeps its own batch order and, up to 0.13.0, moves short
    prefills to the front; model runner V2 sorts by length and shows its batch only after the forward.
    """
    batch = getattr(runner, "input_batch", None)
    if batch is None:
        state = runner.execute_model_state
        batch = state[0] if isinstance(state, tuple) and not hasattr(state, "input_batch") else state.input_batch
    return [request for request in batch.req_ids if request in scheduled]


class Span(NamedTuple):
    """Consecutive rows of one request in the last forward: positions ``start`` on, ``row`` the first."""

    request: str
    start: int
    row: int
    rows: int


def spans(runner: Any, scheduler_output: Any) -> list[Span]:
    """The rows of the last forward by request, in the order of the batch."""
    starts = {request.req_id: request.num_computed_tokens for request in scheduler_output.scheduled_new_reqs}
    cached = scheduler_output.scheduled_cached_reqs
    starts.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    scheduled = scheduler_output.num_scheduled_tokens
    found = []
    row = 0
    for request in batch_order(runner, scheduled):
        found.append(Span(request, starts[request], row, scheduled[request]))
        row += scheduled[request]
    return found


def held(runner: Any) -> int:
    """How many requests a runner keeps state of."""
    requests = runner.requests if hasattr(runner, "requests") else runner.req_states.req_id_to_index
    return len(requests)


class Recorder:
    """Hooks on the decoder layers, and the rows they saw, by request and position."""

    def __init__(self, runner: Any, layers: Iterable[int], *, keep: bool) -> None:
        self.runner = runner
        self.keep = keep
        self.recordings: dict[str, Recording] = {}
        self.last: dict[int, torch.Tensor] = {}
        self._capturing = False
        self.activity = Activity()
        stack = decoder_stack(loaded_model(runner))
        for layer in layers:
            stack.layers[layer].register_forward_hook(self._hook(layer))
        self._execute_model = runner.execute_model
        runner.execute_model = self.execute_model

    def _hook(self, layer: int) -> Any:
        def capture(_module: Any, _inputs: Any, output: Any) -> None:
            if self._capturing:
                hidden, residual = output if isinstance(output, tuple) else (output, None)
                self.last[layer] = hidden.clone() if residual is None else hidden + residual

        return capture

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if scheduler_output.total_num_scheduled_tokens:
            self.last = {}
        self._capturing = True  # Warm-up and profiling forwards do not come through here.
        try:
            result = self._execute_model(scheduler_output, *args, **kwargs)
        finally:
            self._capturing = False
        if self.keep and scheduler_output.total_num_scheduled_tokens:
            self._file(scheduler_output)
        return result

    def _file(self, scheduler_output: Any) -> None:
        for request in scheduler_output.scheduled_new_reqs:
            self.recordings.setdefault(request.req_id, Recording(token_ids=list(request.prompt_token_ids)))
        batch = spans(self.runner, scheduler_output)
        self.activity.forwards += 1
        self.activity.reordered += [span.request for span in batch] != list(scheduler_output.num_scheduled_tokens)
        for span in batch:
            self._keep(span)

    def _keep(self, span: Span) -> None:
        request_id, start, row, count = span
        recording = self.recordings.get(request_id)
        if recording is None:
            return
        length = len(recording.token_ids)
        stop = min(start + count, length)  # Rows past the prompt belong to generated tokens.
        if start >= stop:
            return
        if not len(recording.seen):
            recording.seen = torch.zeros(length, dtype=torch.bool)
        self.activity.cut += stop < length
        self.activity.resumed += start < recording.end
        recording.end = stop
        recording.seen[start:stop] = True
        for layer, states in self.last.items():
            if layer not in recording.rows:
                recording.rows[layer] = torch.zeros(length, states.shape[-1], dtype=states.dtype)
            recording.rows[layer][start:stop] = states[row : row + stop - start].cpu()


def encode(tensor: torch.Tensor) -> tuple[str, list[int], bytes]:
    """A tensor as dtype name, shape and bytes: what every way between vLLM's processes carries unchanged."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return (
        str(tensor.dtype).removeprefix("torch."),
        list(tensor.shape),
        flat.view(torch.uint8).numpy().tobytes(),
    )


class CaptureExtension(NumberedCalls, Drills):
    """Mixed into vLLM's worker class by ``worker_extension_cls``; called through ``collective_rpc``."""

    def harness_start(self, layers: list[int]) -> str | None:
        """Put hooks on these decoder layers. The recorder keeps rows on the first TP rank only.

        Returns:
            Why they cannot be, if they cannot.
        """
        worker: Any = self
        tensor_parallel_size = worker.vllm_config.parallel_config.tensor_parallel_size
        keep = worker.rank % tensor_parallel_size == 0
        self.harness_recorder = Recorder(worker.model_runner, layers, keep=keep)
        model = type(loaded_model(worker.model_runner)).__name__
        worker_log.logger(worker.rank).info("hooks on layers %s of %s", layers, model)
        return None

    def harness_identity(self) -> dict[str, Any]:
        """Which process answers: its pid, rank, the executor backend that vLLM chose, and what runs the model."""
        worker: Any = self
        runner = worker.model_runner
        return {
            "pid": os.getpid(),
            "rank": worker.rank,
            "backend": str(worker.vllm_config.parallel_config.distributed_executor_backend),
            "runner": f"{type(runner).__module__}.{type(runner).__name__}",
            "model": type(loaded_model(runner)).__name__,
        }

    def harness_take(self) -> list[dict[str, Any]] | None:
        """Everything recorded since the last call, and forget it; None on ranks that keep nothing."""
        recorder = self.harness_recorder
        if not recorder.keep:
            return None
        taken = [
            {
                "request_id": request_id,
                "token_ids": recording.token_ids,
                "missing": [position for position, seen in enumerate(recording.seen.tolist()) if not seen],
                "states": {str(layer): encode(rows) for layer, rows in recording.rows.items()},
            }
            for request_id, recording in recorder.recordings.items()
        ]
        recorder.recordings = {}
        return taken

    def harness_activity(self) -> dict[str, int]:
        """What was done since the last call, and the requests that the runner still holds, as ``held``."""
        recorder = self.harness_recorder
        activity, recorder.activity = recorder.activity, Activity()
        return {**asdict(activity), "held": held(recorder.runner)}

    def harness_follow_inputs(self) -> None:
        """Keep what goes into each layer of the next forward, for `harness_inputs`."""
        worker: Any = self
        self.harness_followed = Inputs(decoder_stack(loaded_model(worker.model_runner)))

    def harness_inputs(self) -> dict[str, tuple[str, list[int], bytes]]:
        """The inputs of the last forward: layer ids, and the number of layers, to tensors as `encode` gives them."""
        return {str(number): encode(states) for number, states in self.harness_followed.take().items()}

    def harness_clear(self) -> None:
        """Drop what a capture that failed has left."""
        self.harness_recorder.recordings = {}

    def harness_forget(self) -> None:
        """Drop the last forward's states, as if nothing had been captured."""
        self.harness_recorder.last = {}

    def harness_tensors(self) -> list[torch.Tensor] | None:
        """The last forward's states, a tensor ``[tokens, hidden_size]`` a layer; None if nothing was captured.

        This is the reply that capture code in the field gives, and what the reply cases look at.
        """
        last = self.harness_recorder.last
        return [last[layer].cpu() for layer in sorted(last)] or None
