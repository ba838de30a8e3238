"""The client: an ``LLM`` that writes a safetensors file a request; we wait for it, check it, and delete it."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness import surface
from harness.checkpoint import model_config
from harness.clients.contract import EngineSpec, Sample, check_prompts, check_spec, input_ids
from harness.clients.failures import translated
from harness.clients.llm import OpenLLM
from harness.engine_arguments import set_variables

from . import files, refusals
from .arguments import engine_arguments, wanted_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

# What `host` does, in the words of the evidence.
_PINNED = "the connector copies into plain memory: without an accelerator, torch has none that is pinned"
_STREAMS = (
    "the connector's copy streams and events are done at once: vLLM's placeholders for them on a CPU lack what it "
    "calls (v1/worker/cpu/shm.py, Event.query up to 0.32.0)"
)


class ExtractionEngine(OpenLLM):
    """An open ``vllm.LLM`` that extracts into ``folder``."""

    def __init__(self, spec: EngineSpec, folder: Path) -> None:
        ours = engine_arguments(spec.layers, folder, spec.device)
        super().__init__(replace(spec, extra_arguments={**spec.extra_arguments, **ours}))
        self.repairs = (_PINNED, _STREAMS) if spec.device == "cpu" else ()
        self._folder = folder
        self._hidden_size = model_config(spec.model)["hidden_size"]

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        check_prompts(self.spec, prompts)
        outputs = self._prefill([{"prompt_token_ids": list(prompt)} for prompt in prompts])
        deadline = time.monotonic() + self.spec.timeout
        samples = []
        for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
            path = files.promised(number, output)
            with translated(self._calls.workers):
                files.wait(path, deadline, self._advance)
            samples.append(self._sample(prompt, path))
        return samples

    def _advance(self) -> None:
        """Let vLLM go on: states are written in the step after the one that finished their request.

        An EngineCore process takes that step by itself; without one, nobody does once ``generate`` has returned.
        """
        if not self.spec.engine_core_process:
            self._llm.llm_engine.step()

    def _sample(self, prompt: Sequence[int], path: Path) -> Sample:
        token_ids, states = files.take(path)
        ids = wanted_ids(self.spec.layers)
        files.check(path.name, prompt, token_ids, states, (len(prompt), len(ids), self._hidden_size))
        return Sample(
            token_ids=token_ids,
            states={
                layer: states[:, ids.index(wanted)].contiguous()
                for layer, wanted in zip(self.spec.layers, input_ids(self.spec.layers), strict=True)
            },
        )

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class ExtractionClient:
    """VLLM's own, where the release runs it."""

    name = "extract-hidden-states"

    def refuses(self, spec: EngineSpec) -> str | None:
        return refusals.reason(surface.installed_root(), spec)

    def open(self, spec: EngineSpec) -> ExtractionEngine:
        check_spec(spec)
        set_variables(spec)
        folder = Path(tempfile.mkdtemp(prefix="hidden-states-"))
        try:
            return ExtractionEngine(spec, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


CLIENT = ExtractionClient()
