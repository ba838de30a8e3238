"""What workers say, and what of it is seen: a message that nobody sees cannot tell why a capture failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from harness.drills import WAYS
from harness.findings import expect
from harness.worker_log import line_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.shared_engine import SharedEngine

# What differs from run to run and from edit to edit.
CHANGING = (
    (re.compile(r"pid=\d+"), "pid=N"),
    (re.compile(r"(\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d([.,]\d+)?"), "TIME"),
    (re.compile(r"drills\.py:\d+"), "drills.py:N"),
)


def _seen(lines: list[str], said: str) -> str:
    """How the one line that ends so arrived."""
    found = [line.removesuffix(said) + "..." for line in lines if line.endswith(said)]
    for pattern, name in CHANGING:
        found = [pattern.sub(name, line) for line in found]
    return " and ".join(found) or "not seen"


def test_what_workers_say(engine: SharedEngine, workers: list[dict[str, Any]], matches: Callable[..., None]) -> None:
    """What each rank prints and logs: on which stream it arrives, and behind which prefix, if at all."""
    engine.offer("ask")
    seen: dict[str, list[str]] = {way: [] for way in WAYS}
    for worker in workers:
        # One rank after the other; every line is in the file before the reply.
        word = f"drill {worker['rank']}"
        engine.call("ask", "harness_say", worker["rank"], word)
        lines = engine.heard(word)
        for way in WAYS:
            seen[way].append(_seen(lines, f"{word}: {way}"))
    matches(
        seen,
        cause="which loggers have a handler in a worker, and at which level, differs from release to release, "
        "and so does the prefix that vLLM gives to the lines of its workers",
        advice="give your own worker code a logger with its own handler, as harness/worker_log.py does",
    )


def test_harness_is_heard(engine: SharedEngine, workers: list[dict[str, Any]]) -> None:
    """The harness's own words from every worker arrive on standard error, with rank and pid."""
    engine.offer("ask")  # Who has it has our extension in the workers.
    for worker in workers:
        start = line_start(worker["rank"], worker["pid"])
        hooks = [line for line in engine.heard(start) if "hooks on layers" in line]
        expect(
            len(hooks) == 1 and hooks[0].startswith(f"stderr: {start} INFO: "),
            expected=f"one line on stderr that begins with {start!r} and says where the hooks are",
            got=str(hooks or engine.heard("harness rank")),
            cause="the worker's standard error goes elsewhere, or something took the handler off our logger",
            advice="look at what the release does to file descriptor 2 and to logging.Logger.manager in its workers",
        )
