"""``harness check``: which engines the vLLM installed here is held to, what they run on, and evidence of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import clients, conducting, evidence, identity, limits, machine, prompts, settings, sources, tools
from .errors import UsageError
from .report import summary
from .run import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .options import Options
    from .releases import Build
    from .settings import Group, Setting


def check(options: Options) -> int:
    """Run the suite.

    Returns:
        0 if everything conforms, 1 on findings, 130 after ^C.

    Raises:
        EnvironmentUnusableError: there is no usable vLLM here.
        UsageError: a client or a path is wrong.
    """
    facts = identity.environment()
    planned = (
        settings.chosen(options.clients, options.settings, options.model_kind)
        if options.settings
        else settings.plan(options.clients, options.tensor_parallel_sizes, options.model_kind, _requested(options))
    )
    groups = _willing(_possible(planned, facts, options), options)
    results = options.evidence or folder(facts, options) / "evidence.json"
    code, record = run(options, facts, groups, results)
    # Printed first: a full disk must not take the findings with it.
    if options.as_json:
        print(json.dumps(record.as_dict(), indent=1))
    else:
        summary.terminal(record, results)
    evidence.write(results, record)
    summary.step_summary(record)
    return code


def folder(facts: Mapping[str, Any], options: Options) -> Path:
    """Where evidence of the vLLM of these facts is kept."""
    return Path("results") / options.results(facts["release"] or facts["version"])


def run(
    options: Options, facts: dict[str, Any], groups: Sequence[Group], results: Path
) -> tuple[int, evidence.Evidence]:
    """Run the cases on some engines; what is said of it, and writing ``results``, is left to who asks.

    Returns:
        The exit code of `check`, and the record.

    Raises:
        EnvironmentUnusableError: the suite's own tools are missing here.
    """
    tools.require()
    return conducting.conduct(options, facts, groups, results, lambda work: prepare(work, facts, options, groups))


def _requested(options: Options) -> list[Setting]:
    """The settings that are opened only on request, if any was."""
    if not options.on_request:
        return []
    backend = options.executor_backend or "mp"
    return settings.requested(options.tensor_parallel_sizes, options.pipeline_parallel_size, backend)


def _possible(groups: list[Group], facts: dict[str, Any], options: Options) -> list[Group]:
    """The groups that this vLLM can run on this device.

    Raises:
        EnvironmentUnusableError: there is no GPU, and the suite is to run on one.
    """
    gpus = machine.gpus() if options.device == "cuda" else 0
    left = []
    for group in groups:
        size = group.setting.ranks
        if gpus and size > gpus:
            options.say(f"{group.name} is left out: it needs {size} GPUs, and there are {gpus}")
        elif reason := limits.obstacle(facts, options.device, group.needs):
            options.say(f"{group.name} is left out: {reason}")
        else:
            left.append(group)
    return left


def _willing(groups: list[Group], options: Options) -> list[Group]:
    """The groups that their clients do not refuse.

    Raises:
        UsageError: a client cannot be loaded, or none is left.
    """
    left = []
    for group in groups:
        spec = group.setting.spec(model="", layers=(0,), device=options.device, dtype=options.dtype)
        if reason := clients.load(group.client).refuses(spec):
            options.say(f"{group.name} is left out: {group.client} {reason}")
        else:
            left.append(group)
    if not left:
        raise UsageError("no engine is left: choose another --client, setting or --model-kind")
    return left


def prepare(work: Path, facts: dict[str, Any], options: Options, groups: Sequence[Group]) -> Run:
    """Fill a work folder: the checkpoints, the prompts, and what the run is about.

    Raises:
        UsageError: no checkpoint divides among so many ranks.
    """
    from .models import WRITERS, deepseek_v2

    release = facts["release"] or facts["version"]
    build = identity.build(facts)
    kinds = dict.fromkeys(group.model_kind for group in groups)
    ranks = max(group.setting.tensor_parallel_size for group in groups)
    run = Run(
        release=release,
        device=options.device,
        dtype=options.dtype,
        groups=tuple(groups),
        layers=(deepseek_v2.NUM_LAYERS - 1, 0, 2, 1, 3),
        checkpoints={kind: str(WRITERS[kind](work / kind, dtype=options.dtype, ranks=ranks)) for kind in kinds},
        work=str(work),
        snapshots=str(sources.suite() / "snapshots" / options.snapshots(release)),
        variables=build.environment if build else {},
        repair=_repair(build),
        block_size=build.block_size if build else settings.BLOCK_SIZE,
        only=options.only,
        repairs=clients.repairs({group.client for group in groups}, options.device),
    )
    run.write(work / "run.json")
    (work / "prompts.json").write_text(json.dumps(prompts.sets(deepseek_v2.VOCAB_SIZE)), encoding="utf-8")
    return run


def _repair(build: Build | None) -> dict[str, Any]:
    """The fields of `EngineSpec` that a build's repair sets."""
    if build is None or build.repair is None:
        return {}
    repair = build.repair
    return {
        **({"extra_arguments": dict(repair.engine_arguments)} if repair.engine_arguments else {}),
        **({"extension": repair.extension} if repair.extension else {}),
    }
