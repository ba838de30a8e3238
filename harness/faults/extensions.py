"""The extension in vLLM's workers, broken on purpose: like `harness.worker`, standard library and torch only."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from multiprocessing import resource_tracker, shared_memory
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from harness import decoder, worker, worker_log
from harness.worker import CaptureExtension, Recorder, Span

if TYPE_CHECKING:
    from collections.abc import Iterable


class _NoResidual(Recorder):
    def _hook(self, layer: int) -> Any:
        def capture(_module: Any, _inputs: Any, output: Any) -> None:
            self.last[layer] = output[0].clone()

        return capture


class _Inputs(Recorder):
    def __init__(self, runner: Any, layers: Iterable[int], *, keep: bool) -> None:
        super().__init__(runner, (), keep=keep)
        # Before the layer: norms of 0.11.0 write into what goes in (custom_op.py: forward_cpu is forward_cuda).
        for number in layers:
            layer = decoder.decoder_stack(decoder.loaded_model(runner)).layers[number]
            layer.register_forward_pre_hook(self._before(number))

    def _before(self, layer: int) -> Any:
        def capture(_module: Any, inputs: Any) -> None:
            _positions, hidden, residual = inputs[:3]
            self.last[layer] = hidden.clone() if residual is None else hidden + residual

        return capture


class _NoCopy(Recorder):
    """Keeps what the layer gave, and adds it up after the forward: by then later layers have written into it.

    Later CPU norms than 0.11.0's are not in place, so they are made so here, as the CUDA kernel is
    (csrc/layernorm_kernels.cu; model_executor/custom_op.py of 0.15.1 and 0.32.0: forward_cpu is forward_native).
    """

    def __init__(self, runner: Any, layers: Iterable[int], *, keep: bool) -> None:
        super().__init__(runner, layers, keep=keep)
        for module in decoder.loaded_model(runner).modules():
            if type(module).__name__ == "RMSNorm":
                module.register_forward_hook(_in_place)

    def _hook(self, layer: int) -> Any:
        def capture(_module: Any, _inputs: Any, output: Any) -> None:
            self.last[layer] = output

        return capture

    def _file(self, scheduler_output: Any) -> None:
        self.last = {layer: hidden + residual for layer, (hidden, residual) in self.last.items()}
        super()._file(scheduler_output)


def _in_place(_module: Any, inputs: Any, output: Any) -> Any:
    if not isinstance(output, tuple):
        return output
    for given, got in zip(inputs, output, strict=True):
        given.copy_(got)
    return inputs


class _Broken(CaptureExtension):
    harness_kind: ClassVar[type[Recorder]]

    def harness_start(self, layers: list[int]) -> None:
        worker.Recorder = self.harness_kind  # type: ignore[misc]  # This process is the fault's own.
        super().harness_start(layers)


class NoResidual(_Broken):
    harness_kind = _NoResidual


class InputsForOutputs(_Broken):
    harness_kind = _Inputs


class NoCopy(_Broken):
    harness_kind = _NoCopy


class NoHooks(CaptureExtension):
    """As after a patch that was made in the parent: this process has nothing of it."""

    def harness_start(self, layers: list[int]) -> None:
        super().harness_start([])

    def harness_take(self) -> Any:
        super().harness_take()
        return []


class Raises(CaptureExtension):
    def harness_take(self) -> Any:
        raise RuntimeError("the hook failed on purpose")


class Hangs(CaptureExtension):
    def harness_take(self) -> Any:
        time.sleep(60.0)


class Silent(CaptureExtension):
    """Its logger has no handler, and it replies with None where something was raised."""

    def harness_start(self, layers: list[int]) -> None:
        worker_log.logger = lambda rank: logging.getLogger(f"plain.{rank}")  # This process is the fault's own.
        super().harness_start(layers)

    def harness_call(self, number: int, method: str, arguments: list[Any]) -> dict[str, Any]:
        reply = super().harness_call(number, method, arguments)
        return {"number": number, "reply": reply.get("reply")}


class LeavesAProcess(CaptureExtension):
    def harness_start(self, layers: list[int]) -> None:
        super().harness_start(layers)
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


class LeavesASegment(CaptureExtension):
    def harness_start(self, layers: list[int]) -> None:
        super().harness_start(layers)
        self.harness_segment = shared_memory.SharedMemory(create=True, size=4096)
        # As one that C++ made: nobody else unlinks it.
        resource_tracker.unregister(f"/{self.harness_segment.name}", "shared_memory")


class _Pieces(Recorder):
    """Keeps the rows of each forward apart, with the position where they begin."""

    def __init__(self, runner: Any, layers: Iterable[int], *, keep: bool) -> None:
        super().__init__(runner, layers, keep=keep)
        self.pieces: dict[str, list[tuple[int, dict[int, torch.Tensor]]]] = {}

    def _keep(self, span: Span) -> None:
        super()._keep(span)
        recording = self.recordings.get(span.request)
        if recording is None:
            return
        rows = {layer: states[span.start : recording.end].clone() for layer, states in recording.rows.items()}
        self.pieces.setdefault(span.request, []).append((span.start, rows))


class _OfPieces(_Broken):
    """Makes the rows of a prompt from those of its forwards, and does not know what it lacks."""

    harness_kind = _Pieces

    @staticmethod
    def harness_join(pieces: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
        raise NotImplementedError

    def harness_take(self) -> Any:
        recorder: Any = self.harness_recorder
        for request_id, recording in recorder.recordings.items():
            pieces = recorder.pieces.pop(request_id)
            for layer in recording.rows:
                recording.rows[layer] = self.harness_join([(start, rows[layer]) for start, rows in pieces])
            recording.seen = torch.ones_like(recording.seen)
        return super().harness_take()


class FirstChunk(_OfPieces):
    @staticmethod
    def harness_join(pieces: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
        return pieces[0][1]


class LastChunk(_OfPieces):
    @staticmethod
    def harness_join(pieces: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
        return pieces[-1][1]


class InOrderOfForwards(_OfPieces):
    @staticmethod
    def harness_join(pieces: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
        return torch.cat([rows for _start, rows in pieces])


class UntilPreempted(_OfPieces):
    """Takes a request that begins again for one that it has."""

    @staticmethod
    def harness_join(pieces: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        for start, rows in pieces:
            if start < sum(map(len, kept)):
                break
            kept.append(rows)
        return torch.cat(kept)


def _as_scheduled(runner: Any, scheduled: dict[str, int]) -> list[str]:  # noqa: ARG001 - the signature of another.
    return list(scheduled)


class InOrderOfTheSchedule(CaptureExtension):
    """Takes the runner's batch to be in the scheduler's order."""

    def harness_start(self, layers: list[int]) -> None:
        worker.batch_order = _as_scheduled  # This process is the fault's own.
        super().harness_start(layers)
