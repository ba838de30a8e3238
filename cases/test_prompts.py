"""Per prompt: order, token ids, batching, repetition, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import recognition
from harness.agreement import equal, sound
from harness.arrays import difference
from harness.errors import CaptureError, InvalidPromptError
from harness.findings import expect

if TYPE_CHECKING:
    from harness.clients.contract import Sample
    from harness.shared_engine import SharedEngine

STALE = "these are the states of the previous call, which are still in the workers, or a reply that came late"
UNCLEAR = "the second call computes something else: a request kept its slot, or something is random"


def _compare(engine: SharedEngine, one: Sample, other: Sample, what: str, cause: str, advice: str) -> None:
    """That a sample of a further call is sound, and equals the first call's."""
    sound(other, engine.spec, what, cause)
    for layer in engine.spec.layers:
        apart = difference(one.states[layer], other.states[layer])
        expect(
            apart.within(engine.tolerance),
            expected=f"{what}, layer {layer}: equal within {engine.tolerance:g} of the largest value",
            got=str(apart),
            cause=cause,
            advice=advice,
        )


def _expect_own(samples: list[Sample], prompts: list[list[int]], advice: str, cause: str = "") -> None:
    """That the samples of a call are of its prompts, in their order."""
    given = [sample.token_ids for sample in samples]
    expect(
        given == prompts,
        expected=f"samples of {[len(prompt) for prompt in prompts]} tokens, with the ids that were asked for",
        got=f"samples of {[len(ids) for ids in given]} tokens",
        cause=cause or recognition.order(prompts, given),
        advice=advice,
    )


def test_order_and_token_ids(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """One sample a prompt, in the order they were given, with the token ids that were given."""
    samples = engine.shared_capture(prompts)
    _expect_own(samples, prompts, "map rows to requests inside the worker, from the runner's own batch")


def test_batch_equals_one_by_one(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """Eight prompts of distinct lengths in one call give what each gives alone."""
    together = engine.shared_capture(prompts)
    before = together[-1]
    for number, prompt in enumerate(prompts):
        alone = _one(engine.capture([prompt]), prompt, before)
        _compare(
            engine,
            together[number],
            alone,
            f"prompt {number} ({len(prompt)} tokens) in the batch and alone",
            "rows are sliced in another order than the runner's, or padding was not removed",
            "map rows to requests inside the worker, from the runner's own batch",
        )
        before = alone


def _one(samples: list[Sample], prompt: list[int], before: Sample) -> Sample:
    """The one sample of a call, of that call's prompt."""
    _expect_own(
        samples,
        [prompt],
        "clear what is recorded when it is taken, and refuse what belongs to no prompt of the call",
        STALE if before.token_ids in [sample.token_ids for sample in samples] else "",
    )
    return samples[0]


def test_repeated_prompt(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """A prompt that is given twice in one call has two samples, in their places."""
    asked = [prompts[0], prompts[1], prompts[0]]
    samples = engine.capture(asked)
    _expect_own(samples, asked, "tell requests apart by their id, not by their token ids")
    before = engine.shared_capture(prompts)
    for place, number in enumerate((0, 1, 0)):
        _compare(
            engine,
            before[number],
            samples[place],
            f"sample {place}, of prompt {number}, with prompt 0 given twice",
            "the second request was served from what the first left, or only one of them was recorded",
            "give every request a row range of its own",
        )


def test_samples_outlive_the_next_call(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """What a call gave is still the same after several further calls."""
    before, asked = engine.shared_capture(prompts), prompts[:2]
    kept = engine.capture_and_go_on(asked, prompts[2:4])
    _expect_own(kept, asked, "give one sample a prompt, whatever the number of prompts")
    for number, sample in enumerate(kept):
        _compare(
            engine,
            before[number],
            sample,
            f"prompt {number}, looked at after further calls",
            "samples are views of a buffer that a later call fills again",
            "copy the rows out of the buffer before they are given",
        )


def test_second_call_equals_first(engine: SharedEngine, prompts: list[list[int]]) -> None:
    """The same prompts again, the other way round, give the same states: nothing of the first call is left over."""
    first = engine.shared_capture(prompts)
    again = engine.capture(prompts[::-1])
    _expect_own(
        again,
        prompts[::-1],
        "clear what is recorded when it is taken, and refuse what belongs to no prompt of the call",
        STALE if [sample.token_ids for sample in again] == prompts else "",
    )
    for number, (one, other) in enumerate(zip(first, again[::-1], strict=True)):
        _compare(
            engine,
            one,
            other,
            f"prompt {number} in the first and the second call",
            STALE if equal(engine, other, first[-1 - number]) else UNCLEAR,
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
        engine.capture([prompts[1], prompt])
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
    after = _one(engine.capture(prompts[:1]), prompts[0], before[1])
    _compare(
        engine,
        before[0],
        after,
        "prompt 0 before and after the refusal",
        "the refused call left requests in the scheduler",
        "refuse the whole call before the first request is queued",
    )
