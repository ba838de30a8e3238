"""Why a real run certainly cannot work, and what of it no case of the suite covers: rules on plain data."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from .errors import UsageError
from .models import deepseek_v2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .needs import Request
    from .target import Target


def of(request: Request, target: Target | None, devices: Mapping[str, Any]) -> Iterator[str]:
    """Why a run cannot work, whatever the suite says; with what to change."""
    if target is not None:
        yield from _layers(request, target)
        yield from _lengths(request, target)
        for what, size in (("attention heads", target.heads), ("hidden size", target.hidden_size)):
            if size is not None and size % request.tensor_parallel_size:
                yield (
                    f"{what} {size} cannot be divided among {request.tensor_parallel_size} ranks: choose another "
                    f"--tensor-parallel-size"
                )
        if request.pipeline_parallel_size > target.num_layers:
            yield f"{request.pipeline_parallel_size} stages for {target.num_layers} layers: lower the pipeline size"
    if repeated := sorted(layer for layer, count in collections.Counter(request.layers).items() if count > 1):
        yield f"layers {repeated} are asked for twice: give each once"
    yield from _ranks(request, devices)
    longest, room = request.longest_prompt, request.max_model_len
    if longest is not None and room is not None and longest >= room:
        yield f"a prompt of {longest} tokens and the one that is generated do not fit max_model_len {room}"
    budget = request.max_num_batched_tokens
    if not request.chunked_prefill and budget is not None and max(longest or 0, room or 0) > budget:
        # config/scheduler.py, SchedulerConfig, in every pinned release.
        yield (
            f"without chunked prefill, vLLM wants max_num_batched_tokens ({budget}) to be no less than "
            f"max_model_len ({max(longest or 0, room or 0)})"
        )


def _layers(request: Request, target: Target) -> Iterator[str]:
    outside = [layer for layer in request.layers if not 0 <= layer < target.num_layers]
    if outside:
        yield (
            f"layers {outside} do not exist: the model has {target.num_layers} decoder layers, 0 to "
            f"{target.num_layers - 1}, and layer i is the output of decoder layer i"
        )


def _ranks(request: Request, devices: Mapping[str, Any]) -> Iterator[str]:
    if request.executor == "uni" and request.ranks > 1:
        yield f"executor uni has one rank, not {request.ranks}: use mp"
    if devices["kind"] != "cpu" and request.executor != "ray" and request.ranks > devices["count"]:
        yield (
            f"{request.ranks} ranks need as many devices, and there are {devices['count']}: lower the sizes, or look "
            f"at CUDA_VISIBLE_DEVICES"
        )
    try:
        deepseek_v2.config(request.tensor_parallel_size)
    except UsageError as error:
        yield str(error)


def _lengths(request: Request, target: Target) -> Iterator[str]:
    longest, positions = request.longest_prompt, target.max_positions
    if longest is not None and positions is not None and request.max_model_len is None and longest >= positions:
        yield f"a prompt of {longest} tokens does not fit the model's {positions} positions: shorten it"


def uncovered(
    request: Request, target: Target | None, *, known: Sequence[str], harmless: Sequence[str]
) -> Iterator[str]:
    """What of a run no case covers.

    Args:
        request: the run.
        target: its model, if one is named.
        known: the architectures that the suite has a tiny model of.
        harmless: engine arguments that make no difference to a capture.
    """
    if target is None:
        yield "no --model: nothing is known of its layers, its wrapper, its weights and its dtype"
    else:
        yield from _uncovered_model(target, known)
    if request.pipeline_parallel_size > 1:
        yield "chunks, preemption and cached prefixes are proved on one pipeline stage"
    if others := [name for name in request.engine_arguments if name not in harmless]:
        yield f"no case runs with {', '.join(others)}: other kernels, layouts or paths may be taken"
    if request.executor == "ray":
        yield "chunks, preemption and cached prefixes are proved with processes in place of Ray's workers"


def _uncovered_model(target: Target, known: Sequence[str]) -> Iterator[str]:
    if unknown := [name for name in target.architectures if name not in known]:
        yield (
            f"the suite has no tiny model of {', '.join(unknown)}: its decoder is not covered, those of "
            f"{', '.join(known)} are"
        )
    if not target.architectures:
        yield "the model's config names no architecture: its decoder is not covered"
    if target.quantised is not None:
        yield f"weights are quantised ({target.quantised}): every case runs on plain ones"
    if not target.experts:
        yield "the model is dense: every tiny model of the suite has experts from its second layer on"


def dtypes(wanted: str | None, proved: set[str]) -> list[str]:
    """What to say where evidence is of another dtype than the run's."""
    if wanted is None or not proved or proved == {wanted}:
        return []
    return [f"the run is in {wanted}, and the evidence in {', '.join(sorted(proved))}: other kernels may be chosen"]
