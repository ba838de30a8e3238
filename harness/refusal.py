"""What the gate decided, as a person reads it and as a program does; commands to paste close what they can."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from .needs import Request
from .options import DEFAULT_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .coverage import Gap
    from .gate import Decision

_OPTIONS = {"chunked_prefill": "--no-chunked-prefill", "prefix_caching": "--no-prefix-caching"}


def text(decision: Decision, command: Sequence[str] = (), *, again: str = "") -> str:
    """All of a refusal: what does not count, what is in the way, what is missing and how to close it.

    Args:
        decision: it.
        command: what is not started.
        again: the command line that runs what is missing and goes on; the gate's own if not given.
    """
    total = len(decision.covered) + len(decision.gaps)
    lines = [f"refused: {len(decision.gaps)} of {total} cases that this run needs are not covered"]
    if decision.obstacles:
        lines = ["refused: this run cannot work", *_items(decision.obstacles)]
    for path, reasons in decision.invalid.items():
        lines += [f"{path} does not count:", *_items(reasons)]
    if not decision.obstacles:
        if not (decision.files or decision.invalid):
            lines.append(f"there is no evidence in {', '.join(map(str, decision.places))}")
        lines += [*_gaps(decision.gaps), *_closing(decision, command, again)]
    return "\n".join([*lines, *_warnings(decision)])


def accepted(decision: Decision) -> str:
    """What is covered, by which evidence, and what is not the suite's to say."""
    engines = ", ".join(group.name for group in decision.needs.groups)
    lines = [f"covered: all {len(decision.covered)} cases that this run needs, on {engines}"]
    lines += _items([str(path) for path in decision.files])
    for path, reasons in decision.invalid.items():
        lines.append(f"{path} does not count: {reasons[0]}")
    return "\n".join([*lines, *_warnings(decision)])


def as_dict(decision: Decision, command: Sequence[str] = (), *, again: str = "") -> dict[str, Any]:
    """The same for a program; arguments as of `text`."""
    return {
        "passes": decision.passes,
        "release": decision.facts["release"],
        "version": decision.facts["version"],
        "request": dataclasses.asdict(decision.request),
        "engines": [group.name for group in decision.needs.groups],
        "covered": list(decision.covered),
        "gaps": [
            {"case": gap.case, "engine": gap.need.engine, "why": gap.why, "said": gap.said, "reason": gap.need.reason}
            for gap in decision.gaps
        ],
        "obstacles": list(decision.obstacles),
        "warnings": list(decision.warnings),
        "evidence": [str(path) for path in decision.files],
        "invalid": {str(path): reasons for path, reasons in decision.invalid.items()},
        "commands": commands(decision, command, again),
    }


def commands(decision: Decision, command: Sequence[str] = (), again: str = "") -> list[str]:
    """What to paste: the whole run with what is missing first, and the step that closes it by hand.

    The first is left out where something has failed, and both where a known fault of vLLM is on the way.
    """
    if decision.passes or decision.obstacles or any(gap.why == "known fault" for gap in decision.gaps):
        return []
    goes_on = again or _gate(decision.request, command)
    lines = [goes_on] if len(decision.missing) == len(decision.gaps) else []
    engines = {gap.need.engine for gap in decision.gaps}
    groups = [group for group in decision.needs.groups if group.name in engines] or list(decision.needs.groups[:1])
    request, dtype = decision.request, decision.options.dtype
    words = ["check", "--client", request.client, "--device", request.device]
    words += [part for group in groups for part in ("--setting", group.setting.name)]
    words += [] if groups[0].model_kind == "deepseek-v2" else ["--model-kind", groups[0].model_kind]
    words += [] if dtype == DEFAULT_DTYPES[request.device] else ["--dtype", dtype]
    words += ["--evidence", str(decision.kept / "by-hand.json")]
    return [*lines, shlex.join([*_harness(), *words])]


def _gate(request: Request, command: Sequence[str]) -> str:
    """The gate's command line for a request, with what is missing run first."""
    words = ["gate", *arguments(request), "--run-missing", *(["--", *command] if command else [])]
    return shlex.join([*_harness(), *words])


def this_command() -> str:
    """The command line that this program was started with, with what is missing run first."""
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    own, command = given[:cut], given[cut:]
    further = [] if "--run-missing" in own else ["--run-missing"]
    return shlex.join([*_harness(), *own, *further, *command])


def arguments(request: Request) -> list[str]:
    """A request as options of ``harness gate``."""
    words: list[str] = []
    for field in dataclasses.fields(Request):
        value = getattr(request, field.name)
        if value == field.default:
            continue
        if field.name == "engine_arguments":
            words += [part for name in value for part in ("--engine-argument", name)]
        elif field.name in _OPTIONS:
            words.append(_OPTIONS[field.name])
        elif value is True:
            words.append(f"--{field.name.replace('_', '-')}")
        else:
            said = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [f"--{field.name.replace('_', '-')}", said]
    return words


def unset(left: Mapping[str, str]) -> list[str]:
    """What to say of variables that the suite sets for its engines, and a command does not get."""
    if not left:
        return []
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in left.items())
    return [f"the suite runs with {words}: set them for the run too, or it may take another path"]


def _harness() -> list[str]:
    """How this program is called here, from a shell that may know neither its folder nor its variables."""
    script, path = sys.argv[0], os.environ.get("PYTHONPATH")
    called = ["harness" if shutil.which("harness") == script else script]
    if script.endswith("__main__.py"):
        called = [sys.executable, "-m", "harness"]
    return [*(["env", f"PYTHONPATH={path}"] if path else []), *called]


def _closing(decision: Decision, command: Sequence[str], again: str) -> list[str]:
    lines = commands(decision, command, again)
    if len(lines) > 1:
        return ["run what is missing, and go on:", f"  {lines[0]}", "or run it by hand first:", f"  {lines[1]}"]
    if lines:
        return ["look at it alone, and run it again when its cause is gone:", f"  {lines[0]}"]
    return ["a known fault of vLLM is on the way: choose another release or executor (docs/known-faults.md)"]


def _gaps(gaps: Sequence[Gap]) -> Iterator[str]:
    """A line a case, below a line an engine and a reason."""
    sorted_out: dict[tuple[str, str], dict[str, list[Gap]]] = {}
    for gap in gaps:
        sorted_out.setdefault((gap.need.engine, gap.said), {}).setdefault(gap.need.case.name, []).append(gap)
    for (engine, said), names in sorted_out.items():
        yield f"{engine}: {said}"
        for name, each in names.items():
            times = f" ({len(each)})" if len(each) > 1 else ""
            yield f"  {name}{times}: {each[0].need.reason}"


def _warnings(decision: Decision) -> list[str]:
    return ["not covered by any case:", *_items(decision.warnings)] if decision.warnings else []


def _items(lines: Sequence[str]) -> list[str]:
    return [textwrap.indent(line, "  ") for line in lines]
