"""The gate: a command starts only if evidence for this very environment covers what it needs."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import (
    __version__,
    check,
    clients,
    coverage,
    evidence,
    identity,
    limits,
    needs,
    obstacles,
    refusal,
    sources,
    target,
    validity,
    variables,
)
from .errors import INTERRUPTED, GateRefusedError, UsageError
from .options import DEFAULT_DTYPES, DTYPES, Options, model_runner
from .validity import MAX_AGE_DAYS, Here

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .coverage import Gap
    from .evidence import Evidence
    from .needs import Needs, Request
    from .target import Target

# The client of `harness extract`, which sets its release's variables by itself.
EXTRACT = "extract"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the gate says of a run; it may start if ``gaps`` and ``obstacles`` are empty.

    ``covered`` are ids of cases, ``files`` the evidence that counts, ``invalid`` the files that do not, each with all
    reasons. ``places`` are where evidence was looked for; ``folder`` is where that of this vLLM and device is kept if
    nothing else is said. ``options`` is how the suite is run for it.
    """

    request: Request
    facts: dict[str, Any]
    needs: Needs
    covered: tuple[str, ...]
    gaps: tuple[Gap, ...]
    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]
    files: tuple[Path, ...]
    invalid: dict[Path, list[str]]
    places: tuple[Path, ...]
    folder: Path
    options: Options

    @property
    def kept(self) -> Path:
        """Where evidence of what the gate runs goes: into a folder that it looks at, if there is one."""
        return next((place for place in self.places if place.is_dir()), self.folder) / "gate"

    @property
    def passes(self) -> bool:
        return not (self.gaps or self.obstacles)

    @property
    def missing(self) -> tuple[Gap, ...]:
        """The gaps that running the suite may close: what failed, and what is known to, would fail again."""
        return tuple(gap for gap in self.gaps if gap.why == "not run")


def require(
    request: Request,
    *,
    places: Sequence[Path] = (),
    run_missing: bool = False,
    max_age: float = MAX_AGE_DAYS,
    quiet: bool = True,
    again: str = "",
) -> Decision:
    """Let a run through, or refuse it.

    Args:
        request: what the run is going to do.
        places: files of evidence and folders of them; the folder of this vLLM and device, if none is given.
        run_missing: run what is missing first, if nothing else is in the way; its evidence is kept.
        max_age: of evidence, in days.
        quiet: leave stdout alone: progress goes to stderr.
        again: the command line that runs what is missing and goes on; that of the gate if not given.

    Raises:
        GateRefusedError: something is not covered; the message has each gap, and the command that closes it.
        UsageError: the model, the client or a place is wrong.
        EnvironmentUnusableError: there is no usable vLLM here.
        KeyboardInterrupt: while the missing cases ran.
    """
    decision = decide(request, places=places, max_age=max_age)
    if run_missing:
        decision = closed(decision, max_age=max_age, quiet=quiet)
    if not decision.passes:
        raise GateRefusedError(refusal.text(decision, again=again))
    return decision


def closed(decision: Decision, *, max_age: float, quiet: bool) -> Decision:
    """The decision after what is missing was run; the same one if that is not all that is in the way."""
    if decision.obstacles or not decision.missing or len(decision.missing) < len(decision.gaps):
        return decision
    ran = run(decision, quiet=quiet)
    return decide(decision.request, places=[*decision.places, ran], max_age=max_age)


def decide(request: Request, *, places: Sequence[Path] = (), max_age: float = MAX_AGE_DAYS) -> Decision:
    """What evidence covers of a run, and what it does not; boots nothing.

    Raises:
        UsageError: the model, the client or a place is wrong.
        EnvironmentUnusableError: there is no usable vLLM here.
    """
    model = target.read(request.model) if request.model is not None else None
    facts = identity.environment()
    build = identity.build(facts)
    builds = build.environment if build is not None else {}
    facts |= identity.of_run(request.device, [request.client], builds)
    needed = needs.work_out(request, model, facts["devices"])
    options = _options(request, model)
    folder, release = check.folder(facts, options), facts["release"] or facts["version"]
    here = Here(
        facts=facts,
        client=request.client,
        harness=__version__,
        suite=sources.digest(sources.suite(), options.snapshots(release)),
        now=dt.datetime.now(dt.UTC),
        max_age=max_age,
    )
    valid, invalid = _read(_files(places or [folder], given=bool(places)), here)
    covered, gaps = coverage.covered(needed, list(valid.values()), release, request.device)
    engines = {group.name for group in needed.groups}
    dtypes = {str(e.spec.get("dtype")) for record in valid.values() for e in record.engines if e.group in engines}
    unset = {} if request.client == EXTRACT else variables.left_to_the_suite(builds, os.environ)
    return Decision(
        request=request,
        facts=facts,
        needs=needed,
        covered=tuple(covered),
        gaps=tuple(gaps),
        obstacles=(*needed.obstacles, *_of_this_vllm(request, needed, facts)),
        warnings=(
            *needed.warnings,
            *obstacles.dtypes(request.dtype or (model.dtype if model is not None else None), dtypes),
            *refusal.unset(unset),
        ),
        files=tuple(valid),
        invalid=invalid,
        places=tuple(places) or (folder,),
        folder=folder,
        options=options,
    )


def _options(request: Request, model: Target | None) -> Options:
    """How the suite is run for a request: in its dtype, where the suite has that one."""
    wanted = request.dtype or (model.dtype if model is not None else None)
    return Options(
        clients=(request.client,),
        device=request.device,
        tensor_parallel_sizes=(),
        model_kind=None,
        keyword="",
        evidence=None,
        update_snapshots=False,
        jobs=None,
        as_json=True,
        dtype=next((dtype for dtype in DTYPES if dtype == wanted), DEFAULT_DTYPES[request.device]),
        model_runner=model_runner(),
    )


def _of_this_vllm(request: Request, needed: Needs, facts: dict[str, Any]) -> list[str]:
    """Why this vLLM, or the client, cannot run an engine that is needed."""
    client = clients.load(request.client)
    said: dict[str, None] = {}
    for group in needed.groups:
        if reason := limits.obstacle(facts, request.device, group.needs):
            said[f"{group.name} cannot be opened here: {reason}"] = None
        spec = group.setting.spec(model="", layers=(0,), device=request.device)
        if reason := client.refuses(spec):
            said[f"client {request.client} refuses {group.setting.name}: it {reason}"] = None
    return list(said)


def _files(places: Sequence[Path], *, given: bool) -> list[Path]:
    found: dict[Path, None] = {}
    for place in places:
        if place.is_dir():
            found |= dict.fromkeys(sorted(place.rglob("*.json")))
        elif given:
            found[place] = None
    return list(found)


def _read(paths: Sequence[Path], here: Here) -> tuple[dict[Path, Evidence], dict[Path, list[str]]]:
    """The records that count, and of each of the others why it does not."""
    valid: dict[Path, Evidence] = {}
    invalid: dict[Path, list[str]] = {}
    for path in paths:
        try:
            record = evidence.load(path)
        except UsageError as error:
            invalid[path] = [str(error).removeprefix(f"{path} ").removeprefix(f"{path}: ")]
            continue
        if said := validity.objections(record, here):
            invalid[path] = said
        else:
            valid[path] = record
    return valid, invalid


def run(decision: Decision, *, quiet: bool) -> Path:
    """Run exactly what is missing, all engines at once where the machine allows it.

    Returns:
        Where the evidence of it is.
    """
    only: dict[str, list[str]] = {}
    for gap in decision.missing:
        names = only.setdefault(gap.need.engine, [])
        names += [gap.need.case.name] * (gap.need.case.name not in names)
    # One at the least, for cases are dealt to engines; without a case it is not opened.
    groups = [group for group in decision.needs.groups if group.name in only] or list(decision.needs.groups[:1])
    options = replace(
        decision.options, as_json=quiet, settings=tuple(group.setting.name for group in groups), only=only
    )
    # A folder of its own, also within one second and on several hosts: its logs are kept beside its evidence.
    stamp = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%S")
    results = decision.kept / f"{stamp}-{uuid.uuid4().hex[:8]}" / "evidence.json"
    facts = {name: value for name, value in decision.facts.items() if name not in {"devices", "variables", "clients"}}
    code, record = check.run(options, facts, groups, results)
    evidence.write(results, record)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    options.say(f"{len(record.cases)} cases in {record.seconds:.0f} s: {record.verdict}; evidence: {results}")
    return results
