"""A `harness check` that boots nothing: the case fails where the release's `Request` takes no ``eos_token_id``.

``fake_check.py INTERPRETER -m harness check ...``, as the interpreter of an environment of `made`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness import evidence
from harness.evidence import CaseResult, Evidence

CASE = "test_reply.py::test_first_rank[executor-mp-tp2]"


def main(arguments: list[str]) -> int:
    interpreter, *said = arguments
    release = Path(interpreter).parent.parent
    print(" ".join(said))
    (source,) = release.glob("lib/python*/site-packages/vllm/v1/request.py")
    fails = "eos_token_id" not in source.read_text(encoding="utf-8")
    finding = {
        "expected": f"the structure of the case in {said[said.index('--snapshots-of') + 1]}/test_reply.json",
        "got": f"one list less in {release}/lib: [5, 64]",
        "cause": "the nesting changed",
        "advice": "take it as it is",
    }
    record = Evidence(
        harness="0",
        environment={"release": release.name},
        settings={},
        started="2026-11-29T00:00:00+00:00",
        cases=[
            CaseResult(
                id=CASE, outcome="failed" if fails else "passed", seconds=0.0, finding=finding if fails else None
            ),
            CaseResult(id="test_reply.py::test_first_rank[executor-mp-tp20]", outcome="failed", seconds=0.0),
        ],
    )
    evidence.write(Path(said[said.index("--evidence") + 1]), record)
    return int(fails)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
