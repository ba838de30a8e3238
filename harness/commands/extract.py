"""``harness extract``: hidden states of many prompts, into files."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from harness import tools
from harness.clients.contract import ExecutorBackend
from harness.errors import GateRefusedError, UsageError

from . import arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from harness.extraction.display import Display
    from harness.extraction.plan import Plan

HELP = "extract hidden states of many prompts into files; goes on where it was ended"
LAYOUTS = ("connector", "speculators")
DTYPES = ("auto", "bfloat16", "float16", "float32")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="FOLDER", help="the checkpoint")
    parser.add_argument(
        "--layers",
        type=arguments.layers,
        required=True,
        metavar="IDS",
        help="decoder layers, 0-based: 2,30,58,60; in the order of the files",
    )
    parser.add_argument(
        "--prompts", required=True, type=Path, metavar="FILE", help="JSONL, a sample a line: token ids, or text"
    )
    parser.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="where the files go")
    parser.add_argument("--layout", choices=LAYOUTS, default="connector", help="of the files; connector if not given")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="only the I-th of N parts, on this machine")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tensor-parallel-size", type=arguments.size, default=1, metavar="N")
    parser.add_argument("--executor-backend", choices=get_args(ExecutorBackend), default="mp", help="mp if not given")
    parser.add_argument(
        "--max-num-batched-tokens", type=arguments.size, metavar="N", help="tokens a forward; 8192 if not given"
    )
    parser.add_argument(
        "--max-num-seqs", type=arguments.size, metavar="N", help="prompts a forward; 256 if not given"
    )
    parser.add_argument(
        "--max-model-len", type=arguments.size, metavar="N", help="as the longest prompt needs if not given"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="auto", help="auto, as vLLM chooses it, if not given")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the checkpoint")
    parser.add_argument(
        "--engine-argument",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="a further engine argument of vLLM, as gpu_memory_utilization=0.8; repeat for several",
    )
    gate = parser.add_argument_group(
        "the gate", "nothing boots without evidence, from `harness check`, that it works"
    )
    arguments.evidence(gate)
    gate.add_argument("--run-missing", action="store_true", help="run the cases that are missing first")
    gate.add_argument("--no-gate", action="store_true", help="start without evidence; the manifest says so")
    parser.add_argument("--json", action="store_true", help="print JSON lines, as where there is no terminal")


def run(options: argparse.Namespace) -> int:
    from harness.extraction import conduct, shard
    from harness.extraction.display import display
    from harness.extraction.plan import Request, plan

    same = {
        name: getattr(options, name)
        for name in (
            *("model", "layers", "prompts", "output", "layout"),
            *("device", "dtype", "tensor_parallel_size", "executor_backend"),
            *("max_num_batched_tokens", "max_num_seqs", "max_model_len", "trust_remote_code"),
        )
    }
    shown = display(as_json=options.json)
    with _told(shown):
        planned = plan(
            Request(
                **same,
                shard=shard.parse(options.shard),
                engine_arguments=_engine_arguments(options.engine_argument),
            )
        )
        conduct.extract(planned, shown, lambda shown: _permit(options, planned, shown))
    return 0


@contextlib.contextmanager
def _told(shown: Display) -> Iterator[None]:
    """A last line for a program that reads on, where this ends in an error; a person reads it on stderr."""
    from harness.extraction.display import Lines

    try:
        yield
    except Exception as error:
        if isinstance(shown, Lines):
            text, code = tools.explained(error)
            event = "refused" if isinstance(error, (GateRefusedError, UsageError)) else "failed"
            said = f"{type(error).__name__}: {error}" if text == tools.FAULT else text
            shown.say(event, said, exit_code=code)
        raise


def _permit(options: argparse.Namespace, planned: Plan, shown: Display) -> list[str]:
    """The digests of the evidence that lets a plan through.

    Raises:
        GateRefusedError: it is not enough.
    """
    from harness import evidence, gate, refusal
    from harness.extraction.conduct import CLIENT
    from harness.extraction.manifest import UNGATED
    from harness.needs import Request

    if options.no_gate:
        return [UNGATED]
    spec = planned.spec
    same = ("model", "layers", "device", "tensor_parallel_size", "executor_backend")
    sizes = ("max_model_len", "max_num_batched_tokens", "max_num_seqs")
    decision = gate.require(
        Request(
            client=CLIENT,
            **{name: getattr(spec, name) for name in (*same, *sizes)},
            dtype=None if spec.dtype == "auto" else spec.dtype,
            prompts=len(planned.prompts),
            longest_prompt=max(planned.prompts.tokens),
            chunked_prefill=spec.enable_chunked_prefill,
            prefix_caching=spec.enable_prefix_caching,
            engine_arguments=tuple(planned.request.engine_arguments),
        ),
        places=options.evidence,
        run_missing=options.run_missing,
        again=refusal.this_command(),
    )
    for warning in decision.warnings:
        shown.say("warning", f"warning: {warning}")
    return [evidence.read(path)["digest"] for path in decision.files]


def _engine_arguments(given: Sequence[str]) -> dict[str, Any]:
    parsed = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            parsed[name] = json.loads(value)
        except ValueError as error:
            raise UsageError(
                f"--engine-argument {text}: give NAME=JSON, as gpu_memory_utilization=0.8 or "
                f"'kv_cache_dtype=\"auto\"'"
            ) from error
    return parsed
