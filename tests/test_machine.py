from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import machine, settings
from harness.errors import EnvironmentUnusableError

GIB = 2**30


@pytest.mark.parametrize(
    ("groups", "largest", "wanted", "cores", "gib", "bound", "expected"),
    [
        (6, "mp-tp2", None, 2, 100, False, 2),
        (6, "mp-tp2", None, 64, 100, False, 6),
        (6, "mp-tp2", None, 64, 13, False, 2),
        (6, "mp-tp8", None, 64, 100, False, 5),
        (6, "mp-tp2-pp4", None, 64, 100, False, 5),
        (6, "mp-tp2", None, 64, 1, False, 1),
        (1, "mp-tp2", None, 64, 100, False, 1),
        (6, "mp-tp2", None, 64, 100, True, 1),
        (6, "mp-tp2", 4, 1, 1, True, 4),
        (2, "mp-tp2", 4, 64, 100, False, 2),
        (6, "mp-tp2", 1, 64, 100, False, 1),
    ],
)
def test_engines_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
    groups: int,
    largest: str,
    wanted: int | None,
    cores: int,
    gib: int,
    bound: bool,
    expected: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    monkeypatch.setattr(machine, "_available_memory", lambda: gib * GIB)
    variables = {"VLLM_CPU_OMP_THREADS_BIND": "0|1" if bound else "nobind"}
    chosen = [settings.UNI] * (groups - 1) + [settings.named(largest)]
    opened = [settings.Group(client="executor", setting=setting) for setting in chosen]
    assert machine.jobs(opened, wanted, variables) == expected


def test_gpus_are_those_that_torch_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(__version__="2.11.0", cuda=SimpleNamespace(device_count=lambda: 2))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert machine.gpus() == 2
    torch.cuda.device_count = lambda: 0
    with pytest.raises(EnvironmentUnusableError, match="CUDA_VISIBLE_DEVICES"):
        machine.gpus()


def test_available_memory_is_what_the_kernel_says() -> None:
    (total,) = [
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("MemTotal:")
    ]
    assert 0 < machine._available_memory() < total
