"""Workers are other processes, and every rank answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from harness.findings import expect

if TYPE_CHECKING:
    from harness.plugin import SharedEngine


def test_every_rank_answers_from_its_own_process(engine: SharedEngine) -> None:
    """One answer a rank, in rank order; under ``mp`` and behind EngineCore, from other processes."""
    engine.offer("identities")
    answers = engine.call("identities")
    size = engine.spec.tensor_parallel_size
    ranks = [answer["rank"] for answer in answers]
    expect(
        ranks == list(range(size)),
        expected=f"ranks {list(range(size))}",
        got=str(ranks),
        cause="replies are not in rank order, or a rank did not answer",
        advice="take the rank from the reply, not from its place",
    )
    pids = {answer["pid"] for answer in answers}
    # What vLLM chose: from 0.20.2 to 0.26.0, its CPU platform runs "uni" as "mp" (platforms/cpu.py).
    backends = {answer["backend"] for answer in answers}
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


def test_the_model_that_runs_is_the_checkpoints(engine: SharedEngine) -> None:
    """Every rank runs the class that the checkpoint names: the multimodal wrapper, not what it wraps."""
    engine.offer("identities")
    config = json.loads((Path(engine.spec.model) / "config.json").read_text(encoding="utf-8"))
    models = {answer["model"] for answer in engine.call("identities")}
    expect(
        models == set(config["architectures"]),
        expected=str(config["architectures"]),
        got=str(sorted(models)),
        cause="vLLM resolves the architecture to another class, or falls back to the one of transformers",
        advice="look the architecture up in model_executor/models/registry.py; hook what is found below the wrapper",
    )
