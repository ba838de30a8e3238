"""speculators 0.3.0, driven as its documentation shows: ``VllmHiddenStatesGenerator(...).generate(token_ids)``.

None of our own checks stand before it: what it lets through is for the cases to find. Its layer ids are the suite's:
id *i* is the output of decoder layer *i*, residual added (data_generation/custom_worker.py, ``_patched_forward``). It
gives the layers in the model's order, whatever order they were asked for in; that is put right here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import surface
from harness.engine_arguments import set_variables
from harness.errors import (
    ClientError,
    EnvironmentUnusableError,
    IncompleteSampleError,
    InvalidLayerError,
    WorkerFailedError,
)

from . import speculators_patches as patches
from .contract import EngineSpec, Sample
from .failures import end, translated
from .speculators_repairs import IMPORT, REPAIRS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

VERSION = "0.3.0"
# Stand-ins, no repairs of speculators: it was written for GPUs, and it takes the dtype that vLLM takes by itself,
# which is bfloat16 for the float32 checkpoints that values are compared on.
MEMORY_ON_CPU = "memory-on-cpu"
DTYPE = "dtype"


class SpeculatorsEngine:
    """A `VllmHiddenStatesGenerator`; its module is patched while it is called, and only then."""

    def __init__(self, spec: EngineSpec, module: Any, generator: Any) -> None:
        self.spec = spec
        self.repairs = spec.repairs
        self._module = module
        self._generator = generator
        self._workers: list[int] = [worker.proc.pid for worker in generator.executor.workers]

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        with _told(self._workers), patches.applied(_chosen(self.spec), self._module):
            results = self._generator.generate([list(prompt) for prompt in prompts])
        return [self._sample(number, result) for number, result in enumerate(results)]

    def _sample(self, number: int, result: Mapping[str, Any]) -> Sample:
        token_ids, tensors = result["input_ids"].tolist(), result["hidden_states"]
        layers = sorted(set(self.spec.layers))
        if len(tensors) != len(layers):
            raise IncompleteSampleError(
                f"prompt {number} ({len(token_ids)} tokens): {len(tensors)} tensors of {list(tensors[0].shape)} in "
                f"place of {len(layers)} of [{len(token_ids)}, hidden_size]"
            )
        states = dict(zip(layers, tensors, strict=True))
        return Sample(token_ids=token_ids, states={layer: states[layer] for layer in self.spec.layers})

    def close(self) -> None:
        end(self._generator.executor.shutdown, self._workers)


class SpeculatorsClient:
    """speculators 0.3.0 as it is on PyPI, or with every repair that the vLLM at hand needs."""

    repairs = REPAIRS

    def __init__(self, name: str, *, repaired: bool) -> None:
        self.name = name
        self._repaired = repaired

    def opens_with(self, device: str) -> tuple[str, ...]:
        require_installed()
        stand_ins = (MEMORY_ON_CPU, DTYPE) if device == "cpu" else (DTYPE,)
        if not self._repaired:
            return stand_ins
        here = surface.read(surface.installed_root())
        return (*stand_ins, *(repair.name for repair in REPAIRS if not repair.instead_of and repair.needed(here)))

    def refuses(self, spec: EngineSpec) -> str | None:
        if spec.executor_backend != "mp" or spec.engine_core_process:
            return "always makes vLLM's multiprocess executor, in its own process"
        return None

    def open(self, spec: EngineSpec) -> SpeculatorsEngine:
        require_installed()
        set_variables(spec)
        memory = patches.memory_on_cpu() if MEMORY_ON_CPU in spec.repairs else contextlib.nullcontext()
        with _told(), memory:
            module = _import(spec.repairs)
            with patches.applied(_chosen(spec), module):
                generator = _make(module, spec)
        return SpeculatorsEngine(spec, module, generator)


def _chosen(spec: EngineSpec) -> list[Callable[[Any], None]]:
    dtype = [patches.insist("ModelConfig", dtype=spec.dtype)] if DTYPE in spec.repairs else []
    return dtype + [repair.patch for repair in REPAIRS if repair.name in spec.repairs]


def _make(module: Any, spec: EngineSpec) -> Any:
    # Apart from __init__: if that raises, the workers it has started are still ours to end.
    generator: Any = module.VllmHiddenStatesGenerator.__new__(module.VllmHiddenStatesGenerator)
    try:
        type(generator).__init__(
            generator,
            model_path=spec.model,
            layer_ids=list(spec.layers),
            max_model_len=spec.max_model_len,
            tensor_parallel_size=spec.tensor_parallel_size,
        )
    except BaseException:
        if hasattr(generator, "executor"):
            generator.executor.shutdown()
        raise
    return generator


def _import(repairs: Collection[str]) -> Any:
    if IMPORT.name in repairs:
        patches.name_torch()
    try:
        return importlib.import_module("speculators.data_generation.vllm_hidden_states_generator")
    except BaseException:
        # What was imported by then must not be taken for the whole by the next try.
        for name in [name for name in sys.modules if name.partition(".")[0] == "speculators"]:
            del sys.modules[name]
        raise


@contextlib.contextmanager
def _told(workers: Sequence[int] = ()) -> Iterator[None]:
    """What speculators raises, with where it was raised: vLLM's assertions have no words of their own.

    Raises:
        InvalidLayerError: speculators refused a layer id.
        ClientError: anything else, but for what `translated` tells apart.
    """
    try:
        with translated(workers):
            yield
    except WorkerFailedError as error:
        origin = error.__cause__ or error
        place = traceback.extract_tb(origin.__traceback__)[-1]
        kind = InvalidLayerError if "out of bounds" in str(origin) and isinstance(origin, ValueError) else ClientError
        raise kind(f"{error} (in {place.name}, {Path(place.filename).name})") from origin


def require_installed() -> None:
    """Refuse to test another version than the name says.

    Raises:
        EnvironmentUnusableError: speculators is missing here, or is another version.
    """
    try:
        found = importlib.metadata.version("speculators")
    except importlib.metadata.PackageNotFoundError:
        found = ""
    if found != VERSION:
        raise EnvironmentUnusableError(
            f"speculators {VERSION} is not installed here{f', but {found}' if found else ''}. Run `harness "
            f"environment RELEASE --client speculators-{VERSION}`, and the suite with the Python that it prints."
        )


CLIENT = SpeculatorsClient("speculators-0.3.0", repaired=False)
REPAIRED = SpeculatorsClient("speculators-0.3.0-repaired", repaired=True)
