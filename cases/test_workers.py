"""Workers are other processes, and every rank answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.findings import expect

if TYPE_CHECKING:
    from harness.shared_engine import SharedEngine

# A parent that has not imported the model's module does so now.
PATCH_SECONDS = 60.0


def test_every_rank_answers_from_its_own_process(engine: SharedEngine, workers: list[dict[str, Any]]) -> None:
    """One answer a rank, in rank order; under ``mp`` and behind EngineCore, from other processes."""
    size = engine.spec.ranks
    ranks = [worker["rank"] for worker in workers]
    expect(
        ranks == list(range(size)),
        expected=f"ranks {list(range(size))}",
        got=str(ranks),
        cause="a rank did not answer" if len(ranks) < size else "replies are not in rank order",
        advice="take the rank from the reply, not from its place",
    )
    pids = {worker["pid"] for worker in workers}
    # What vLLM chose: from 0.20.2 to 0.22.1, its CPU platform runs "uni" as "mp" (platforms/cpu.py).
    backends = {worker["backend"] for worker in workers}
    in_process = backends == {"uni"} and not engine.spec.engine_core_process
    expect(
        len(pids) == size and (pids == {engine.pid}) == in_process,
        expected="the client's own process" if in_process else f"{size} processes other than {engine.pid}",
        got=f"pids {sorted(pids)}, executor backend {sorted(backends)}",
        cause="the worker does not run where its executor backend says",
        advice="a patch made in the parent reaches a worker only where the worker is the parent",
    )
    expect(
        engine.spec.executor_backend == "uni" or backends == {engine.spec.executor_backend},
        expected=f"executor backend {engine.spec.executor_backend}",
        got=str(sorted(backends)),
        cause="vLLM chose another executor backend than the one that was asked for",
        advice="look at what its platform does to parallel_config (platforms/cpu.py, platforms/cuda.py)",
    )


def test_patch_in_the_parent(engine: SharedEngine, workers: list[dict[str, Any]]) -> None:
    """What is patched in the engine's own process after the boot reaches a worker exactly if it is that process."""
    engine.offer("ask")
    module, name = engine.call("ask", "harness_model_class")[0]
    engine.ask("patch", module, name, "harness_patch", timeout=PATCH_SECONDS)
    patched = dict(
        zip(
            (worker["pid"] for worker in workers),
            engine.call("ask", "harness_is_patched", "harness_patch"),
            strict=True,
        )
    )
    expect(
        patched == {pid: pid == engine.pid for pid in patched},
        expected=f"a patch of {name} in process {engine.pid} to reach no other process",
        got=f"patched, by process: {patched}",
        cause="the workers were forked after the patch, or they are not the processes that they say they are",
        advice="patch in a worker extension, which vLLM imports in every worker, and check it through collective_rpc",
    )


def test_the_model_that_runs_is_the_checkpoints(engine: SharedEngine, workers: list[dict[str, Any]]) -> None:
    """Every rank runs the class that the checkpoint names: the multimodal wrapper, not what it wraps."""
    config = json.loads((Path(engine.spec.model) / "config.json").read_text(encoding="utf-8"))
    models = {worker["model"] for worker in workers}
    expect(
        models == set(config["architectures"]),
        expected=str(config["architectures"]),
        got=str(sorted(models)),
        cause="vLLM resolves the architecture to another class, or falls back to the one of transformers",
        advice="look the architecture up in model_executor/models/registry.py; hook what is found below the wrapper",
    )
