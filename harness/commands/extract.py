"""``harness extract``: hidden states of many prompts, into files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from harness.clients.contract import ExecutorBackend
from harness.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

HELP = "extract hidden states of many prompts into files; goes on where it was ended"
LAYOUTS = ("connector", "speculators")
DTYPES = ("auto", "bfloat16", "float16", "float32")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="FOLDER", help="the checkpoint")
    parser.add_argument(
        "--layers",
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
    parser.add_argument("--tensor-parallel-size", type=int, default=1, metavar="N")
    parser.add_argument("--executor-backend", choices=get_args(ExecutorBackend), default="mp", help="mp if not given")
    parser.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="tokens a forward; 8192 if not given")
    parser.add_argument("--max-num-seqs", type=int, metavar="N", help="prompts a forward; 256 if not given")
    parser.add_argument("--max-model-len", type=int, metavar="N", help="as the longest prompt needs if not given")
    parser.add_argument("--dtype", choices=DTYPES, default="auto", help="auto, as vLLM chooses it, if not given")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the checkpoint")
    parser.add_argument(
        "--engine-argument",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="a further engine argument of vLLM, as gpu_memory_utilization=0.8; repeat for several",
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines, as where there is no terminal")


def run(options: argparse.Namespace) -> int:
    from harness.extraction import conduct, shard
    from harness.extraction.display import display
    from harness.extraction.plan import Request, plan

    for name in ("tensor_parallel_size", "max_num_batched_tokens", "max_num_seqs", "max_model_len"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be 1 or more")
    same = {
        name: getattr(options, name)
        for name in (
            *("model", "prompts", "output", "layout", "device", "dtype", "tensor_parallel_size", "executor_backend"),
            *("max_num_batched_tokens", "max_num_seqs", "max_model_len", "trust_remote_code"),
        )
    }
    planned = plan(
        Request(
            **same,
            layers=_layers(options.layers),
            shard=shard.parse(options.shard),
            engine_arguments=_engine_arguments(options.engine_argument),
        )
    )
    conduct.extract(planned, display(as_json=options.json), list)
    return 0


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"--layers {text}: give numbers with commas between them, as 2,30,58,60") from error


def _engine_arguments(given: Sequence[str]) -> dict[str, Any]:
    arguments = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            arguments[name] = json.loads(value)
        except ValueError as error:
            raise UsageError(
                f"--engine-argument {text}: give NAME=JSON, as gpu_memory_utilization=0.8 or "
                f"'kv_cache_dtype=\"auto\"'"
            ) from error
    return arguments
