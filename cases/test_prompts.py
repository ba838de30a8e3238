"""Per prompt: order, token ids, batching, repetition, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.arrays import difference
from harness.errors import CaptureError, InvalidPromptError
from harness.findings import expect

if TYPE_CHECKING:
    from harness.clients.contract import Sample
    from harness.plugin import SharedEngine

# Kernels may sum a batch in another order than a single prompt: float32 rounding, up to 1e-5 seen on values of
# size 10. Rows of another prompt or layer differ by 0.1 and more.
BATCH_TOLERANCE = 1e-4


def _compare(one: Sample, other: Sample, tolerance: float, what: str, cause: str, advice: str) -> None:
    for layer, states in one.states.items():
        apart = difference(states, other.states[layer])
        expect(
            apart.within(tolerance),
            expected=f"{what}, layer {layer}: equal within {tolerance:g}",
            got=str(apart),
            cause=cause,
            advice=advice,
        )


def test_order_and_token_ids(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """One sample a prompt, in the order they were given, with the token ids that were given."""
    samples = engine.shared_capture(prompts)
    expect(
        [sample.token_ids for sample in samples] == prompts,
        expected=f"samples of {[len(prompt) for prompt in prompts]} tokens, with the ids that were asked for",
        got=f"samples of {[len(sample.token_ids) for sample in samples]} tokens",
        cause="rows come back in the runner's batch order, not in the order of the requests",
        advice="map rows to requests inside the worker, from the runner's own batch",
    )


def test_batch_equals_one_by_one(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """Eight prompts of distinct lengths in one call give what each gives alone."""
    together = engine.shared_capture(prompts)
    for number, prompt in enumerate(prompts):
        (alone,) = engine.capture([prompt])
        _compare(
            together[number],
            alone,
            BATCH_TOLERANCE,
            f"prompt {number} ({len(prompt)} tokens) in the batch and alone",
            "rows are sliced in another order than the runner's, or padding was not removed",
            "map rows to requests inside the worker, from the runner's own batch",
        )


def test_second_call_equals_first(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """The same call again gives the same states: nothing of the first is left over."""
    first = engine.shared_capture(prompts)
    for number, (one, other) in enumerate(zip(first, engine.capture(prompts), strict=True)):
        _compare(
            one,
            other,
            BATCH_TOLERANCE,  # Behind EngineCore, the second call may be batched otherwise.
            f"prompt {number} in the first and the second call",
            "states of the previous call are still in the workers, or a request kept its slot",
            "clear what is recorded when it is taken, and run the step that tells workers of finished requests",
        )


@pytest.mark.parametrize("bad", ["empty", "too-long", "outside-vocabulary"])
def test_invalid_prompts_are_refused(engine: SharedEngine, prompts: list[list[int]], bad: str) -> None:
    """A prompt that cannot be captured is refused by name, and the engine goes on."""
    prompt = {
        "empty": [],
        "too-long": [2] * (engine.spec.max_model_len + 1),
        "outside-vocabulary": [2, 10**6],
    }[bad]
    before = engine.shared_capture(prompts)
    got = "samples"
    try:
        engine.capture([prompts[0], prompt])
    except InvalidPromptError:
        got = ""
    except CaptureError as error:
        got = f"{type(error).__name__}: {error}"
    expect(
        not got,
        expected=f"a prompt that is {bad} to be refused with InvalidPromptError",
        got=got,
        cause="vLLM drops, truncates or reads past such a prompt, depending on the release",
        advice="check prompts before they are queued",
    )
    (after,) = engine.capture(prompts[:1])
    _compare(
        before[0],
        after,
        BATCH_TOLERANCE,
        "prompt 0 before and after the refusal",
        "the refused call left requests in the scheduler",
        "refuse the whole call before the first request is queued",
    )
