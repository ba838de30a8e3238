"""Whether samples are those of a reference, and sound: what is found, and that nothing ends in another error."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.agreement import agree, equal, sound
from harness.clients.contract import EngineSpec, Sample
from harness.findings import BrokenPromiseError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WIDTH = 8
LAYERS = (3, 1)
PROMPTS = [[5, 6, 7], [8, 9]]
ROWS = np.random.default_rng(0).standard_normal((2, 2, 3, WIDTH)).astype(np.float32)
REFERENCE = {
    f"set.{number}.{layer}": ROWS[number, place, : len(prompt)]
    for number, prompt in enumerate(PROMPTS)
    for place, layer in enumerate(LAYERS)
}


@dataclass(frozen=True)
class Judged:
    spec: EngineSpec
    tolerance: float = 1e-5


@pytest.fixture
def spec(tmp_path: Path) -> EngineSpec:
    (tmp_path / "config.json").write_text(
        json.dumps({"num_hidden_layers": 5, "hidden_size": WIDTH, "vocab_size": 99}), encoding="utf-8"
    )
    return EngineSpec(model=str(tmp_path), layers=LAYERS)


def _samples() -> list[Sample]:
    return [
        Sample(token_ids=list(prompt), states={layer: REFERENCE[f"set.{number}.{layer}"].copy() for layer in LAYERS})
        for number, prompt in enumerate(PROMPTS)
    ]


def _agree(samples: list[Sample], spec: EngineSpec) -> None:
    agree(Judged(spec), samples, PROMPTS, REFERENCE, "set", cause="a chunk", advice="look")


def _changed(change: Callable[[dict[Any, Any]], dict[Any, Any]]) -> Callable[[list[Sample]], list[Sample]]:
    return lambda samples: [samples[0], replace(samples[1], states=change(dict(samples[1].states)))]


def test_equal_samples_agree(spec: EngineSpec) -> None:
    _agree(_samples(), spec)
    ids = [np.asarray(prompt) for prompt in PROMPTS]
    _agree([replace(sample, token_ids=list(own)) for sample, own in zip(_samples(), ids, strict=True)], spec)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda samples: samples[:1], r"prompts \[1\] have no sample"),
        (lambda samples: [*samples, samples[0]], "prompt 0 has more than one sample"),
        (lambda samples: samples[::-1], "0 of them right"),
        (_changed(lambda states: {3: states[3] + 1, 1: states[1]}), "a chunk"),
        (_changed(lambda states: {3: states[3]}), "layers are others"),
        (_changed(lambda _states: {}), "layers are others"),
        (_changed(lambda states: {1: states[1], 3: states[3]}), "in another order"),
        (_changed(lambda states: {**states, 4: states[1]}), "layers are others"),
        (_changed(lambda states: {str(layer): rows for layer, rows in states.items()}), "layers are others"),
        (_changed(lambda states: {3: states[3], 1: states[1].astype(np.float64)}), "of another shape, dtype or"),
        (_changed(lambda states: {3: states[3], 1: np.asfortranarray(states[1])}), "strided"),
    ],
    ids=[
        *("one missing", "one doubled", "swapped", "values", "layer missing", "no layer", "order", "a layer more"),
        *("layers as text", "dtype", "storage"),
    ],
)
def test_what_differs_is_a_finding(
    spec: EngineSpec, change: Callable[[list[Sample]], list[Sample]], said: str
) -> None:
    with pytest.raises(BrokenPromiseError, match=said):
        _agree(change(_samples()), spec)


def test_equal_is_within_the_engines_tolerance(spec: EngineSpec) -> None:
    one, other = _samples()
    assert equal(Judged(spec), one, _samples()[0])
    moved = replace(one, states={3: one.states[3], 1: one.states[1] + 0.01})
    assert not equal(Judged(spec), one, moved)
    assert equal(Judged(spec, tolerance=0.1), one, moved)
    assert not equal(Judged(spec), one, other)


def test_cause_of_the_case_comes_first(spec: EngineSpec) -> None:
    sample = _samples()[0]
    with pytest.raises(BrokenPromiseError) as caught:
        sound(replace(sample, states={}), spec, "prompt 0", "a late reply")
    assert caught.value.finding.cause.startswith("a late reply; this call's layers"), caught.value
