"""Whether samples hold the states of the Hugging Face reference, and a finding if they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import recognition
from .arrays import difference
from .findings import expect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .clients.contract import Sample


def agree(
    samples: Sequence[Sample],
    prompts: Sequence[Sequence[int]],
    reference: Mapping[str, Any],
    name: str,
    *,
    tolerance: float,
    cause: str,
    advice: str,
) -> None:
    """Every sample has its prompt's ids, all its rows, and the reference's values.

    Args:
        samples: one a prompt, in order.
        prompts: what was asked for.
        reference: ``{"<set>.<prompt>.<layer>": [n, hidden_size]}``.
        name: the set that the prompts are.
        tolerance: the engine's, of `arrays.TOLERANCES`.
        cause: of any difference, for the finding, beside what the rows are recognised as.
        advice: what to do about it.
    """
    for number, (sample, prompt) in enumerate(zip(samples, prompts, strict=True)):
        what = f"prompt {number} of {len(prompts)} ({len(prompt)} tokens)"
        expect(
            sample.token_ids == list(prompt),
            expected=f"{what}: its own token ids",
            got=f"{len(sample.token_ids)} ids, {sum(map(int.__eq__, sample.token_ids, prompt))} of them right",
            cause=cause,
            advice=advice,
        )
        for layer, states in sample.states.items():
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
