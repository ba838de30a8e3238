"""The gate in a world whose vLLM, devices and clock are told to it; files, records and rules are real.

As a program (``python gated.py FOLDER ARGUMENTS...``) it is the ``harness`` command in such a world, with complete
evidence for two ranks of the executor client in the folder.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flow
import pytest

from harness import __version__, cli, evidence, gate, hardware, identity, needs, refusal, sources, target, variables
from harness.evidence import CaseResult, EngineResult, Evidence
from harness.needs import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RELEASE = flow.RELEASE
RUN = Request(client="executor", tensor_parallel_size=2)
GPUS = {"kind": "cuda", "count": 2, "names": ["NVIDIA H200", "NVIDIA H200"], "driver": "570.1"}
CPU = {"kind": "cpu", "count": 1, "names": ["AMD EPYC"], "driver": None}
CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "vocab_size": 163840,
    "num_attention_heads": 64,
    "n_routed_experts": 384,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}

FOUND = {"expected": "a", "got": "b", "cause": "the buffer was read too early", "advice": "wait"}


class World:
    """What is here, and a record of a run that covers `RUN`: change either, and ask."""

    def __init__(self, folder: Path, request: Request = RUN) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.request = request
        self.facts: dict[str, Any] = copy.deepcopy(flow.FACTS)
        self.devices: dict[str, Any] = dict(CPU)
        self.variables = {"OMP_NUM_THREADS": "1"}
        self.client: dict[str, Any] = {"sha256": "1" * 64, "distributions": {}}
        self.record = self.complete()

    @property
    def path(self) -> Path:
        return self.folder / "evidence.json"

    def needs(self) -> needs.Needs:
        model = target.read(self.request.model) if self.request.model else None
        return needs.work_out(self.request, model, self.devices)

    def complete(self) -> Evidence:
        """What a run that covers the request leaves, written a minute ago."""
        needed = self.needs()
        bound = {"devices": self.devices, "variables": self.variables, "clients": {self.request.client: self.client}}
        return Evidence(
            harness=__version__,
            environment=copy.deepcopy({**self.facts, **bound}),
            settings={
                "clients": [self.request.client],
                "device": self.request.device,
                "dtype": "float32",
                "model_runner": "",
                "snapshots": RELEASE,
                "groups": [group.name for group in needed.groups],
                "keyword": "",
                "whole": False,
                "narrowed": False,
                "only": {},
            },
            started=(dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)).isoformat(timespec="seconds"),
            suite=sources.digest(sources.suite(), RELEASE),
            seconds=52.0,
            engines=[
                EngineResult(
                    group=group.name,
                    spec={
                        "executor_backend": group.setting.executor_backend,
                        "tensor_parallel_size": group.setting.tensor_parallel_size,
                        "pipeline_parallel_size": group.setting.pipeline_parallel_size,
                        "async_scheduling": group.setting.async_scheduling,
                        "device": self.request.device,
                        "dtype": "float32",
                    },
                    timings={"boot": 30.0},
                    left_behind=[],
                )
                for group in needed.groups
            ],
            cases=[CaseResult(id=case, outcome="passed", seconds=0.1) for need in needed.needs for case in need.ids],
        )

    def write(self, record: Evidence | None = None, name: str = "evidence.json") -> None:
        evidence.write(self.folder / name, record if record is not None else self.record)

    def result(self, name: str, **changes: Any) -> None:
        """Change the results of a case, by its function."""
        self.record.cases = [
            CaseResult(**{**vars(case), **changes}) if f"::{name}" in case.id else case for case in self.record.cases
        ]

    def keep(self, words: Iterable[str]) -> None:
        """Leave only the cases whose id has one of these words."""
        self.record.cases = [case for case in self.record.cases if any(word in case.id for word in words)]

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have this be the world."""
        monkeypatch.setattr(identity, "environment", lambda: copy.deepcopy(self.facts))
        monkeypatch.setattr(identity, "client", lambda _name: self.client)
        monkeypatch.setattr(hardware, "describe", lambda _device: self.devices)
        monkeypatch.setattr(variables, "bound", lambda _builds, _users: self.variables)

    def decide(self, **named: Any) -> gate.Decision:
        with pytest.MonkeyPatch.context() as monkeypatch:
            self.use(monkeypatch)
            return gate.decide(self.request, **{"places": [self.folder], **named})

    def refused(self, **named: Any) -> str:
        """What a refusal says."""
        decision = self.decide(**named)
        assert not decision.passes, f"it was let through: {decision.covered}"
        return refusal.text(decision)


def model(folder: Path, **changes: Any) -> str:
    """A checkpoint, as far as the gate reads it: its config."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}), encoding="utf-8")
    return str(folder)


def outcome(outcome: str, **others: Any) -> Callable[[World], None]:
    """Have one case end so."""
    return lambda world: world.result("test_sound_data", outcome=outcome, **others)


def main(arguments: list[str]) -> int:
    folder, *rest = arguments
    world = World(Path(folder))
    world.write()
    world.use(pytest.MonkeyPatch())
    return cli.main(rest)


if __name__ == "__main__":
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    sys.exit(main(sys.argv[1:]))
