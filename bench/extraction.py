"""Extraction against plain prefill, the ``collective_rpc`` way and vLLM's own connector: one model, one run.

``python -m bench.extraction`` in the project's folder, with the Python of an environment that has vLLM; on a GPU with
``--device cuda``. Writes ``extraction-<version>-<device>-tp<N>.json`` and ``.svg``; docs/how-to/measure-extraction.md
says how to read them. Exits with 1 if a way failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import identity, releases
from harness.errors import FINDINGS, INTERRUPTED, OK, HarnessError, UsageError
from harness.writing import write_whole

from . import figures, plot
from .rounds import Race, opened
from .shapes import SHAPES
from .ways import WAYS, Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .rounds import Lane

# One engine's share of all rounds, in seconds: the way with the slowest rounds gets fewer of them.
PATIENCE = 20.0
RAW_SECONDS = 120.0
TMPFS = Path("/dev/shm")  # noqa: S108 - where memory is a file system, not a temporary file.
RESULTS = Path(__file__).resolve().parent / "results"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.extraction")
    parser.add_argument("--device", choices=tuple(SHAPES), default="cpu")
    parser.add_argument("--tensor-parallel-size", type=int, default=1, metavar="N")
    parser.add_argument("--prompts", type=int, metavar="N", help="prompts a round")
    parser.add_argument("--tokens", type=int, metavar="N", help="tokens a prompt")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    names = [way.name for way in WAYS]
    parser.add_argument("--way", action="append", choices=names, help="only this one; repeat for several")
    parser.add_argument("--tmpfs", type=Path, default=TMPFS, metavar="DIR", help="where files are written")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--within", type=float, default=1200.0, metavar="SECONDS", help="begin no round later")
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    shape = SHAPES[options.device]
    plan = Plan(
        device=options.device,
        shape=shape,
        tensor_parallel_size=options.tensor_parallel_size,
        prompts=options.prompts or shape.prompts,
        tokens=options.tokens or shape.tokens,
        timeout=90.0,
    )
    longest = min(shape.config["max_position_embeddings"] - 1, shape.budget)
    if not 0 < plan.tokens <= longest or plan.prompts < 1:
        raise UsageError(f"{plan.prompts} prompts of {plan.tokens} tokens: give at least one, of 1 to {longest}.")
    free, needed = shutil.disk_usage(options.tmpfs).free, 2 * plan.prompts * plan.tokens * shape.row_bytes
    if free < needed:
        raise UsageError(f"{options.tmpfs} has {free} bytes free, and a round may need {needed}: fewer --prompts.")
    return plan


def _raw(plan: Plan, folder: Path) -> dict[str, Any]:
    """The machine's own marks."""
    size = plan.tokens * plan.shape.row_bytes
    return _marks("bench.raw", str(folder), str(plan.prompts), str(size), plan.device)


def _marks(module: str, *arguments: str) -> dict[str, Any]:
    """What a module of ours measures by itself, or why there is nothing."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RAW_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {RAW_SECONDS:g} s"}
    except subprocess.CalledProcessError as error:
        return {"error": error.stderr[-1000:]}
    rates: dict[str, Any] = json.loads(done.stdout)
    return rates


def _accelerators(device: str) -> list[str]:
    if device == "cpu":
        return []
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def _facts(plan: Plan, environment: dict[str, Any]) -> dict[str, Any]:
    return {
        "distribution": environment["distribution"],
        "version": environment["version"],
        "packages": environment["packages"],
        "python": environment["python"],
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "accelerators": _accelerators(plan.device),
        },
        "device": plan.device,
        "tensor_parallel_size": plan.tensor_parallel_size,
        "model": plan.shape.config,
        "dtype": plan.shape.dtype,
        "layers": plan.shape.layers,
        "max_num_batched_tokens": plan.shape.budget,
        "prompts": plan.prompts,
        "tokens_a_prompt": plan.tokens,
        "bytes_a_token": plan.shape.row_bytes,
    }


def _record(facts: dict[str, Any], plan: Plan, lanes: Sequence[Lane]) -> dict[str, Any]:
    ways = {lane.way.name: lane.facts(plan) for lane in lanes}
    return {**facts, "ways": ways, "ratios": figures.ratios(ways)}


def _say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, write the results.

    Returns:
        The exit code.

    Raises:
        UsageError: what was asked for cannot be measured here.
        EnvironmentUnusableError: there is no usable vLLM here.
    """
    deadline = time.monotonic() + options.within
    plan = _plan(options)
    environment = identity.environment()
    build = releases.of_distribution(environment["distribution"], environment["version"])
    name = f"extraction-{environment['version'].partition('+')[0]}-{plan.device}-tp{plan.tensor_parallel_size}"
    ways = [way for way in WAYS if not options.way or way.name in options.way]
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        tmpfs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.tmpfs)))
        facts = {
            **_facts(plan, environment),
            "raw_bytes_per_second": _raw(plan, tmpfs),
            "capture_seconds_a_forward": _marks("bench.capture", plan.device),
        }
        _say(f"raw: {json.dumps(facts['raw_bytes_per_second'])}")
        _say(f"capture: {json.dumps(facts['capture_seconds_a_forward'])}")
        plan.shape.write(work / "model", plan.tensor_parallel_size)
        variables = build.environment if build else {}
        lanes = stack.enter_context(opened(plan, ways, work=work, tmpfs=tmpfs, variables=variables))
        race = Race(plan, lanes, plan.shape.random_prompts(plan.prompts, plan.tokens), _say)
        race.boot()
        race.warm_up()
        for _round in race.run(options.rounds, PATIENCE, deadline):
            record = _record(facts, plan, lanes)
            write_whole(options.results / f"{name}.json", json.dumps(record, indent=1) + "\n")
        # Before the engines are closed, which may take a while too.
        title = f"Tokens a second, vLLM {environment['version']}, {plan.device}, TP={plan.tensor_parallel_size}"
        write_whole(options.results / f"{name}.svg", plot.svg(title, record["ways"]))
        ratios = [f"{key} {ratio}" for key, ratio in record["ratios"].items()]
        print("\n".join([*figures.table(record["ways"]), *ratios]), flush=True)
    return FINDINGS if any(lane.error for lane in lanes) else OK


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Whoever stops it leaves nothing in the tmpfs.
    try:
        code = run(_options(None))
    except HarnessError as error:
        print(f"bench.extraction: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
