"""What wrong states, shapes and samples are instead, if they are anything known: the causes that findings name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import array, broken_rows, difference, empty_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from .arrays import Array
    from .clients.contract import Sample

    Same: TypeAlias = Callable[[Array, Array], bool]

# What else a decoder layer has at hand; `harness.reference` keeps them beside the states.
PARTS = {
    "mlp": "the residual is missing: this is what the layer's MLP gave, before it was added",
    "attention": "the output of the layer's MLP is missing: this is the residual before it was added",
    "norm": "these are after the norm that follows the layer",
}

# Half of the distance between neighbouring values, as a part of them.
BFLOAT16_ROUNDING = 2**-9


def order(prompts: Sequence[Sequence[int]], got: Sequence[Sequence[int]]) -> str:  # noqa: PLR0911 - one a cause.
    """Why the token ids of the samples are not those of the prompts."""
    asked, given = [tuple(prompt) for prompt in prompts], [tuple(ids) for ids in got]
    if doubled := [number for number, ids in enumerate(asked) if given.count(ids) > asked.count(ids)]:
        return f"prompt {doubled[0]} has more than one sample: it is doubled"
    if len(given) < len(asked):
        left = [number for number, ids in enumerate(asked) if given.count(ids) < asked.count(ids)]
        return f"prompts {left} have no sample: equal ones were taken for one, or a finished one was dropped"
    if sorted(asked) == sorted(given):
        if given == sorted(asked, key=len) or given == sorted(asked, key=len, reverse=True):
            return "samples are sorted by length, not in the order of the prompts"
        return "samples come in the order of the runner's batch or of finishing, not in that of the prompts"
    longer = [ids for ids, wanted in zip(given, asked, strict=False) if len(ids) > len(wanted)]
    if longer:
        return "a sample has more ids than its prompt: special tokens were added, or the generated one was kept"
    if any(len(ids) < len(wanted) for ids, wanted in zip(given, asked, strict=False)):
        return "a sample has fewer ids than its prompt: it was cut"
    return "token ids were changed: the sample was not made from the ids that were given"


def structure(  # noqa: PLR0911 - one a cause.
    samples: Sequence[Sample], prompts: Sequence[Sequence[int]], layers: Sequence[int], width: int
) -> str:
    """Why samples do not hold each layer once, ``[n, hidden_size]``."""
    if [len(sample.token_ids) for sample in samples] != [len(prompt) for prompt in prompts]:
        return order(prompts, [sample.token_ids for sample in samples])
    for number, sample in enumerate(samples):
        tokens = len(sample.token_ids)
        where = f"prompt {number}"
        if not all(hasattr(states, "shape") for states in sample.states.values()):
            return f"{where}: what is left of tensors that were lost between processes, or bare lists"
        shapes = {layer: tuple(states.shape) for layer, states in sample.states.items()}
        if any(len(shape) == 1 for shape in shapes.values()):
            return f"{where}: rows were taken for layers: a reply was indexed one level too deep"
        if any(len(shape) > 2 for shape in shapes.values()):  # noqa: PLR2004 - rows and columns.
            return f"{where}: a list or batch axis was kept: a reply was indexed one level too little"
        if missing := [layer for layer in layers if layer not in shapes]:
            return f"{where}: layers {missing} are missing: ids were dropped silently, or changed their type"
        if further := [layer for layer in shapes if layer not in layers]:
            return f"{where}: {further} were not asked for: the final states, or the embedding, came along"
        for layer, shape in shapes.items():
            if shape != (tokens, width):
                return f"{where}, layer {layer}: {shape_of_layer(shape, tokens, width)}"
    return "states were cast: they are not in the model's dtype"


def shape_of_layer(shape: tuple[int, ...], tokens: int, width: int) -> str:
    """Why a layer's states are not ``[tokens, width]``."""
    if len(shape) != 2:  # noqa: PLR2004 - rows and columns.
        return f"{len(shape)} axes: a reply was indexed at the wrong level"
    rows, columns = shape
    if shape == (width, tokens):
        return "transposed: rows are hidden dimensions"
    if columns != width:
        return f"{columns} of {width} columns: one rank's share of the hidden size, not gathered"
    if rows > tokens:
        return "more rows than tokens: padding, generated tokens or other prompts were kept"
    return "fewer rows than tokens: a chunk, a cached prefix or the last row is missing"


def rows(states: Any, reference: Mapping[str, Array], prefix: str, number: int, layer: int, tolerance: float) -> str:
    """What the rows of a prompt at a layer are, if not those of the reference.

    Args:
        states: what was captured.
        reference: ``{"<prefix><prompt>.<layer>": [n, hidden_size]}``, and `PARTS` below that name.
        prefix: the set of prompts.
        number: the prompt.
        layer: the layer.
        tolerance: up to which part of the largest value states are the same.
    """

    def same(one: Array, other: Array) -> bool:
        return len(one) > 0 and difference(one, other).within(tolerance)

    got = array(states)
    own = f"{prefix}{number}.{layer}"
    wanted = reference[own]
    if got.ndim != wanted.ndim or got.shape[1:] != wanted.shape[1:]:
        return f"the shape is another, {list(got.shape)}: see what test_count_shape_and_dtype says"
    if not got.any():
        return "all zeros: nothing was captured"
    if name := _other(got, reference, prefix, own, same):
        return name
    if len(got) != len(wanted):
        return _length(got, wanted, same)
    return _moved(got, wanted, same) or _filled(got, wanted, same) or _computed(got, wanted, same, tolerance)


def _other(got: Array, reference: Mapping[str, Array], prefix: str, own: str, same: Same) -> str:
    """Other states of the same forward that these are, wholly, at their beginning, or together with the norm."""
    for part, cause in PARTS.items():
        if f"{own}.{part}" in reference and same(got, reference[f"{own}.{part}"]):
            return cause
    others = list(_others(reference, prefix, own))
    for name, theirs in others:
        if same(got, theirs):
            return name
    for name, theirs in others:
        if len(got) == len(reference[own]) and same(got[: len(theirs)], theirs[: len(got)]):
            return f"they begin like other states: {name}: its buffer was used again, or the slice is another's"
    residuals, norms = _written_in_place(reference, own.rpartition(".")[0])
    if any(same(got, residual + norm) for residual in residuals for norm in norms):
        return "kept without a copy, and changed in place by what came after: a residual plus a norm"
    return ""


def _written_in_place(reference: Mapping[str, Array], prompt: str) -> tuple[list[Array], list[Array]]:
    """What a fused norm writes into its two arguments: a prompt's residual stream, and its norms, at each layer."""
    parts = [
        (name.removeprefix(f"{prompt}."), rows) for name, rows in reference.items() if name.startswith(f"{prompt}.")
    ]
    residuals = [rows for name, rows in parts if name.isdigit() or name.endswith(".attention")]
    return residuals, [rows for name, rows in parts if name.endswith(".norm")]


def _others(reference: Mapping[str, Array], prefix: str, own: str) -> Iterator[tuple[str, Array]]:
    """The states of other layers of the same prompt, and of other prompts at the same layer."""
    number, layer = own.removeprefix(prefix).split(".")
    names = [name.removeprefix(prefix).split(".") for name in reference if name.startswith(prefix)]
    for theirs in (name for name in names if len(name) == 2):  # noqa: PLR2004 - prompt and layer; parts have three.
        states = reference[f"{prefix}{theirs[0]}.{theirs[1]}"]
        if theirs[0] == number and theirs[1] != layer:
            yield (
                f"these are the states of layer {theirs[1]}: captured {int(theirs[1]) - int(layer):+d} layers away",
                states,
            )
        if theirs[1] == layer and theirs[0] != number:
            yield f"these are the rows of prompt {theirs[0]}", states


def _length(got: Array, wanted: Array, same: Same) -> str:
    few, count = len(got), len(wanted)
    if few > count:
        where = "the prompt's own come first" if same(got[:count], wanted) else "the prompt's own do not come first"
        return f"{few} rows for {count} tokens, and {where}: padding, generated tokens or other prompts were kept"
    if same(got, wanted[count - few :]):
        return f"only the last {few} of {count} rows: the last chunk, or what a cached prefix left"
    if same(got, wanted[:few]):
        return f"only the first {few} of {count} rows: the first chunk, or the end was cut"
    return f"{few} rows for {count} tokens, and they are neither the first nor the last ones"


def _moved(got: Array, wanted: Array, same: Same) -> str:
    if same(got[1:], wanted[:-1]) or same(got[:-1], wanted[1:]):
        return "rows are shifted by one"
    if same(got[::-1], wanted):
        return "rows are in reverse order"
    return ""


def _filled(got: Array, wanted: Array, same: Same) -> str:
    """Rows that were filled, and right, beside some that were not."""
    places = sorted({*empty_rows(got), *broken_rows(got)})
    kept = np.setdiff1d(np.arange(len(got)), places)
    if places and same(got[kept], wanted[kept]):
        side = "the first chunk or a cached prefix" if places[0] == 0 else "a later chunk"
        return f"rows {places[0]} to {places[-1]} were never filled: {side}"
    right = np.array([same(got[row : row + 1], wanted[row : row + 1]) for row in range(len(got))])
    if right[0] and not right[1:].any():
        return "only position 0 is right: the rotary embedding, attention, or a kernel that reads one row for all"
    if right.any() and not right.all():
        wrong = np.flatnonzero(~right)
        return f"rows {wrong[0]} to {wrong[-1]} are wrong and {int(right.sum())} are right: those were overwritten"
    return ""


def _computed(got: Array, wanted: Array, same: Same, tolerance: float) -> str:
    factor = float((got * wanted).sum() / (wanted * wanted).sum())
    if same(got, factor * wanted):
        return f"scaled by {factor:.4g}"
    # A bfloat16 is the upper half of a float32. Where the model computes in it, rounding to it is no fault.
    if tolerance < BFLOAT16_ROUNDING and not (np.ascontiguousarray(got).view(np.uint32) & 0xFFFF).any():
        return "rounded to bfloat16 on the way, and widened again"
    if tolerance < BFLOAT16_ROUNDING and (got == got.astype(np.float16)).all():
        return "rounded to float16 on the way, and widened again"
    return "the computation differs: a kernel, or rows that a later layer changed in place"
