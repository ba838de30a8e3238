"""The extension in vLLM's workers, broken on purpose: like `harness.worker`, standard library and torch only."""

from __future__ import annotations

import subprocess
import sys
import time
from multiprocessing import resource_tracker, shared_memory
from typing import TYPE_CHECKING, Any, ClassVar

from harness import decoder, worker
from harness.worker import CaptureExtension, Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable


class _NoResidual(Recorder):
    def _hook(self, layer: int) -> Any:
        def capture(_module: Any, _inputs: Any, output: Any) -> None:
            self.last[layer] = output[0].clone()

        return capture


class _Inputs(Recorder):
    def _hook(self, layer: int) -> Any:
        def capture(_module: Any, inputs: Any, _output: Any) -> None:
            _positions, hidden, residual = inputs[:3]
            self.last[layer] = hidden.clone() if residual is None else hidden + residual

        return capture


class _NoCopy(Recorder):
    """Keeps what the layer gave, and adds it up after the forward: by then later layers have written into it.

    vLLM's CPU norms are not in place, so they are made so here, as its CUDA kernel is (csrc/layernorm_kernels.cu).
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
