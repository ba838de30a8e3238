"""What the tolerances must not cost: the faults about values, in either dtype, on a real recording."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness import clients, recognition
from harness.arrays import TOLERANCES, difference
from harness.faults import catalogue, recorded, recording
from harness.options import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDINGS = {"float32": recording.FILE, "bfloat16": recording.ROUNDED}
VALUES = [fault for fault in catalogue.load() if fault.kind == "states" and "test_values" in fault.case]
# No faults in bfloat16: what the model computes, and something finer.
ROUNDED = ("rounded_to_bfloat16", "rounded_to_float16")
TOLD = [(dtype, fault) for dtype in DTYPES for fault in VALUES if dtype == "float32" or fault.name not in ROUNDED]


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The dtype of the recording that faults are made of."""
    path: Path = RECORDINGS[request.param]
    monkeypatch.setattr(recording, "FILE", path)
    recorded.recorded.cache_clear()
    yield request.param
    recorded.recorded.cache_clear()


def test_recording_is_of_its_dtype_and_within_its_tolerance(dtype: str) -> None:
    kept = recorded.recorded()
    rounded = all(not (states.view(np.uint32) & 0xFFFF).any() for each in kept.states for states in each.values())
    assert rounded == (dtype == "bfloat16")
    for number, layers in enumerate(kept.states[: len(kept.prompts)]):
        for layer, states in layers.items():
            apart = difference(states, kept.reference[f"{number}.{layer}"])
            assert apart.within(TOLERANCES[dtype]), f"prompt {number}, layer {layer}: {apart}"


def test_what_must_be_told_apart_is_further_apart_than_twice_the_tolerance(dtype: str) -> None:
    kept = recorded.recorded()
    pairs = {
        f"{name} and {other}": difference(kept.reference[name], kept.reference[other])
        for number in range(len(kept.prompts))
        for name, other in [(f"{number}.{layer}", f"{number}.{layer + 1}") for layer in range(4)]
    }
    own = [name for name in kept.reference if name.count(".") == 2 and not name.endswith(".routing")]
    pairs |= {name: difference(kept.reference[name], kept.reference[name.rpartition(".")[0]]) for name in own}
    close = {name: str(apart) for name, apart in pairs.items() if apart.within(2 * TOLERANCES[dtype])}
    assert close == {}


@pytest.mark.parametrize(("dtype", "fault"), TOLD, ids=lambda one: getattr(one, "name", one), indirect=["dtype"])
def test_fault_about_values_is_named_in_either_dtype(dtype: str, fault: catalogue.Fault, tmp_path: Path) -> None:
    kept, tolerance = recorded.recorded(), TOLERANCES[dtype]
    client: Any = clients.load(fault.group.client)
    (tmp_path / "config.json").write_text(json.dumps(kept.config), encoding="utf-8")
    engine = client.engine(fault.group.setting.spec(model=str(tmp_path), layers=kept.layers))
    try:
        samples = engine.capture(kept.prompts)
    finally:
        engine.close()
    wanted = fault.case.partition("[layer")[2].rstrip("]")
    layers = [int(wanted)] if wanted else kept.layers
    causes = {
        recognition.rows(sample.states[layer], kept.reference, "", number, layer, tolerance)
        for number, sample in enumerate(samples)
        for layer in layers
        if not difference(sample.states[layer], kept.reference[f"{number}.{layer}"]).within(tolerance)
    }
    assert any(re.search(fault.cause, cause) for cause in causes), causes
