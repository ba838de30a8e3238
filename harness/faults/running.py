"""Runs the suite against broken clients: the recorded ones anywhere, the live ones on the vLLM installed here."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from harness import check, conducting, identity, sources
from harness.errors import FINDINGS, INTERRUPTED, OK
from harness.options import Options
from harness.report.text import aligned
from harness.run import Run
from harness.settings import BLOCK_SIZE, MP_TP2, Group

from . import catalogue, recording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.evidence import Evidence

    from .catalogue import Fault, Verdict

SOUND = Group(client="harness.faults.recorded:sound", setting=MP_TP2)
# A reply of a tiny model takes milliseconds; what hangs must not take minutes.
LIVE_TIMEOUT = 10.0


def recorded(faults: Sequence[Fault], results: Path, *, quiet: bool) -> tuple[int, list[Verdict]]:
    """Run recorded faults, and the sound client that they break.

    Returns:
        The exit code: 0 if each is as it must be, 1 if not, 130 after ^C; and the verdicts.
    """
    kept = recording.read()
    options = _options([SOUND.client, *(fault.group.client for fault in faults)], quiet, len(os.sched_getaffinity(0)))
    groups = [SOUND, *(fault.group for fault in faults)]

    def prepared(work: Path) -> Run:
        folder = work / "deepseek-v2"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(kept.config), encoding="utf-8")
        # As large as it has to be for damage to show.
        save_file({"weight": np.zeros(64, np.float32)}, folder / "model.safetensors")
        save_file(kept.references, work / "deepseek-v2.safetensors")
        run = Run(
            release=kept.facts["release"],
            device=options.device,
            dtype="float32",
            groups=tuple(groups),
            layers=kept.layers,
            checkpoints={"deepseek-v2": str(folder)},
            work=str(work),
            snapshots=str(sources.suite() / "snapshots" / kept.facts["release"]),
            variables={},
            repair={},
            block_size=BLOCK_SIZE,
            only={SOUND.name: [], **catalogue.only(faults)},
        )
        run.write(work / "run.json")
        (work / "prompts.json").write_text(json.dumps(kept.sets), encoding="utf-8")
        return run

    return _judged(faults, [SOUND], *conducting.conduct(options, kept.facts, groups, results, prepared))


def live(faults: Sequence[Fault], results: Path, *, quiet: bool) -> tuple[int, list[Verdict]]:
    """Run live faults, and the sound clients that they break, under the same settings.

    Returns:
        As `recorded`.

    Raises:
        EnvironmentUnusableError: there is no usable vLLM here.
    """
    facts = identity.environment()
    chosen = [fault for fault in faults if not fault.needs or facts["capabilities"][fault.needs]]
    if not chosen:
        return OK, []
    sound = list(dict.fromkeys(fault.unbroken for fault in chosen))
    groups = list(dict.fromkeys([*sound, *(fault.group for fault in chosen)]))
    options = _options(sorted({group.client for group in groups}), quiet, None)

    def prepared(work: Path) -> Run:
        plain = check.prepare(work, facts, options, groups)
        run = replace(
            plain,
            only={**catalogue.only_sound(chosen), **catalogue.only(chosen)},
            repair={**plain.repair, "timeout": LIVE_TIMEOUT},
        )
        run.write(work / "run.json")
        return run

    return _judged(chosen, sound, *conducting.conduct(options, facts, groups, results, prepared))


def _options(clients: Sequence[str], quiet: bool, jobs: int | None) -> Options:
    return Options(
        clients=tuple(clients),
        device="cpu",
        tensor_parallel_sizes=(),
        keyword="",
        evidence=None,
        update_snapshots=False,
        jobs=jobs,
        model_kind=None,
        as_json=quiet,
    )


def _judged(
    faults: Sequence[Fault], sound: Sequence[Group], code: int, record: Evidence
) -> tuple[int, list[Verdict]]:
    cut = code == INTERRUPTED
    verdicts = [
        *(catalogue.judge_sound(group, record.cases, cut=cut) for group in sound),
        *(catalogue.judge(fault, record.cases, cut=cut) for fault in faults),
    ]
    if cut:
        return INTERRUPTED, verdicts
    return OK if all(verdict.good for verdict in verdicts) else FINDINGS, verdicts


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """A line a verdict, and one that counts."""
    rows = aligned([(verdict.name, verdict.case, verdict.outcome) for verdict in verdicts])
    lines = [
        row + ("" if verdict.outcome in ("caught", "sound") or not verdict.said else f"  {verdict.said:.100}")
        for row, verdict in zip(rows, verdicts, strict=True)
    ]
    counted: dict[str, int] = {}
    for verdict in verdicts:
        counted[verdict.outcome] = counted.get(verdict.outcome, 0) + 1
    return [*lines, "", ", ".join(f"{count} {outcome}" for outcome, count in counted.items())]


def as_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {"good": all(verdict.good for verdict in verdicts), "verdicts": [v.as_dict() for v in verdicts]}
