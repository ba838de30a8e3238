"""Recorded faults in what is not refused: each public name is a client, and an entry of ``catalogue.toml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.checkpoint import model_config
from harness.clients.contract import EngineSpec, Sample, check_spec
from harness.errors import CaptureError, CheckpointError, InvalidLayerError

from .recorded import RecordedClient, RecordedEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _unless(lenient: Callable[[EngineSpec], bool], refusal: type[CaptureError]) -> RecordedClient:
    """A client whose check lets pass what ``lenient`` says."""

    def check(spec: EngineSpec) -> None:
        try:
            check_spec(spec)
        except refusal:
            if not lenient(spec):
                raise

    return RecordedClient(check=check)


negative_layer_taken = _unless(lambda spec: min(spec.layers, default=0) < 0, InvalidLayerError)
layer_beyond_the_last_taken = _unless(
    lambda spec: max(spec.layers, default=0) == model_config(spec.model)["num_hidden_layers"], InvalidLayerError
)
unknown_layer_taken = _unless(lambda spec: max(spec.layers, default=0) > 100, InvalidLayerError)  # noqa: PLR2004
repeated_layer_taken = _unless(lambda spec: len(set(spec.layers)) < len(spec.layers), InvalidLayerError)
no_layers_taken = _unless(lambda spec: not spec.layers, InvalidLayerError)
damaged_checkpoint_taken = _unless(lambda _spec: True, CheckpointError)


def _check_in_other_words(spec: EngineSpec) -> None:
    try:
        check_spec(spec)
    except InvalidLayerError as error:
        raise IndexError(str(error)) from error


refused_in_other_words = RecordedClient(check=_check_in_other_words)


def _lenient(bad: Callable[[Sequence[int]], bool]) -> RecordedClient:
    """A client that lets some prompts pass, and gives zeros for them."""

    class Lenient(RecordedEngine):
        def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
            passed = [prompt for prompt in prompts if bad(prompt)]
            width = model_config(self.spec.model)["hidden_size"]
            given = [
                Sample(
                    token_ids=list(prompt),
                    states={layer: np.zeros((len(prompt), width), np.float32) for layer in self.spec.layers},
                )
                for prompt in passed
            ]
            return [*super().capture([prompt for prompt in prompts if prompt not in passed]), *given]

    return RecordedClient(Lenient)


empty_prompt_taken = _lenient(lambda prompt: not prompt)
long_prompt_taken = _lenient(lambda prompt: len(prompt) > 256)  # noqa: PLR2004 - longer than any recorded one.
unknown_token_taken = _lenient(lambda prompt: max(prompt, default=0) > 10_000)  # noqa: PLR2004


class _RefusesLate(RecordedEngine):
    """Queues what comes before the bad prompt, and takes whatever is recorded for a sample."""

    def capture(self, prompts: Sequence[Sequence[int]]) -> list[Sample]:
        for prompt in prompts:
            self.check([prompt])
            self.workers.call("run", {f"capture-{next(self.numbers)}": list(prompt)})
        taken = self.workers.call("harness_take")
        return self.samples([recording["token_ids"] for recording in taken[0]], taken)


refused_after_queueing = RecordedClient(_RefusesLate)
