"""Whether samples hold the states of the Hugging Face reference, and a finding if they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from . import recognition
from .arrays import difference, storage
from .checkpoint import model_config
from .findings import expect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .clients.contract import EngineSpec, Sample


class Engine(Protocol):
    """What is to be known of an engine whose samples are looked at; ``tolerance`` is of `arrays.TOLERANCES`."""

    @property
    def spec(self) -> EngineSpec: ...

    @property
    def tolerance(self) -> float: ...


def agree(
    engine: Engine,
    samples: Sequence[Sample],
    prompts: Sequence[Sequence[int]],
    reference: Mapping[str, Any],
    name: str,
    *,
    cause: str,
    advice: str,
) -> None:
    """Every sample has its prompt's ids, all its rows, the reference's values, and is `sound`.

    Args:
        engine: whose they are.
        samples: one a prompt, in order.
        prompts: what was asked for.
        reference: ``{"<set>.<prompt>.<layer>": [n, hidden_size]}``.
        name: the set that the prompts are.
        cause: of any difference, for the finding, beside what the rows are recognised as.
        advice: what to do about it.
    """
    spec, tolerance = engine.spec, engine.tolerance
    given = [list(sample.token_ids) for sample in samples]
    expect(
        len(given) == len(prompts),
        expected=f"{len(prompts)} samples",
        got=f"{len(given)}, of {[len(ids) for ids in given]} tokens",
        cause=f"{recognition.order(prompts, given)}; {cause}",
        advice=advice,
    )
    for number, (sample, prompt) in enumerate(zip(samples, prompts, strict=True)):
        what = f"prompt {number} of {len(prompts)} ({len(prompt)} tokens)"
        right = sum(one == other for one, other in zip(sample.token_ids, prompt, strict=False))
        expect(
            given[number] == list(prompt),
            expected=f"{what}: its own token ids",
            got=f"{len(sample.token_ids)} ids, {right} of them right",
            cause=cause,
            advice=advice,
        )
        for layer, states in sample.states.items():
            if layer not in spec.layers:
                break
            apart = difference(states, reference[f"{name}.{number}.{layer}"])
            if not apart.within(tolerance):
                known = recognition.rows(states, reference, f"{name}.", number, layer, tolerance)
                expect(
                    False,
                    expected=f"{what}, layer {layer}: Hugging Face's, within {tolerance:g} of the largest value",
                    got=str(apart),
                    cause=f"{known}; {cause}",
                    advice=advice,
                )
        sound(sample, spec, what, cause)


def sound(sample: Sample, spec: EngineSpec, what: str, cause: str = "") -> None:
    """A sample of any call has what was asked for: its layers in their order, each ``[n, hidden_size]``.

    Args:
        sample: it.
        spec: the engine's.
        what: whose it is, for the finding.
        cause: of any difference, for the finding, beside what is seen.
    """
    before = f"{cause}; " if cause else ""
    advice = "make every sample in one place, whatever the call, the length or the batch"
    expect(
        tuple(sample.states) == spec.layers,
        expected=f"{what}: layers {list(spec.layers)}",
        got=str(list(sample.states)),
        cause=f"{before}this call's layers are others than the first call's, or in another order",
        advice=advice,
    )
    wanted = ([len(sample.token_ids), model_config(spec.model)["hidden_size"]], spec.dtype, "cpu", True)
    for layer, states in sample.states.items():
        got = (list(states.shape), *storage(states))
        expect(
            got == wanted,
            expected=f"{what}, layer {layer}: {_said(*wanted)}",
            got=_said(*got),
            cause=f"{before}this call's states are of another shape, dtype or storage than the first call's",
            advice=advice,
        )


def equal(engine: Engine, one: Sample, other: Sample) -> bool:
    """Whether two samples of an engine have the same states."""
    return all(
        difference(states, other.states[layer]).within(engine.tolerance) for layer, states in one.states.items()
    )


def _said(shape: list[int], dtype: str, device: str, contiguous: bool) -> str:
    return f"{shape} {dtype}, on {device}, {'contiguous' if contiguous else 'strided'}"
