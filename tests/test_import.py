from __future__ import annotations

import json
import subprocess
import sys

import pytest

MODULES = (
    "harness",
    "harness.errors",
    "harness.releases",
    "harness.structure",
    "harness.terminal",
    "harness.arrays",
    "harness.findings",
    "harness.evidence",
    "harness.writing",
    "harness.surface",
    "harness.capabilities",
    "harness.checkpoint",
    "harness.environments",
    "harness.installing",
    "harness.uv",
    "harness.cli",
    "harness.report",
    "harness.processes",
    "harness.remote",
    "harness.host",
    "harness.run",
    "harness.settings",
    "harness.known_faults",
    "harness.limits",
    "harness.decoder",
    "harness.prompts",
    "harness.check",
    "harness.options",
    "harness.conducting",
    "harness.plugin",
    "harness.shared_engine",
    "harness.case_findings",
    "harness.identity",
    "harness.hardware",
    "harness.variables",
    "harness.target",
    "harness.needs",
    "harness.obstacles",
    "harness.validity",
    "harness.coverage",
    "harness.refusal",
    "harness.gate",
    "harness.tools",
    "harness.machine",
    "harness.search",
    "harness.journal",
    "harness.keeper",
    "harness.within",
    "harness.each",
    "harness.web",
    "harness.builds",
    "harness.subjects",
    "harness.bisect",
    "harness.adapters",
    "harness.adapters.shims",
    "harness.clients",
    "harness.clients.contract",
    "harness.clients.failures",
    "harness.clients.calls",
    "harness.clients.extract",
    "harness.extraction.feed",
    "harness.extraction.jobs",
    "harness.extraction.layouts",
    "harness.extraction.ring",
    "harness.extraction.run",
    "harness.extraction.sample",
    "harness.extraction.writers",
    "harness.endings",
    "harness.drills",
    "bench.engines",
    "bench.extraction",
    "bench.suite_cost",
    "harness.worker_calls",
    "harness.worker_log",
    # The cases import these, and run without torch where a client needs none.
    "harness.delivery",
    "harness.extraction.conduct",
    "harness.extraction.layouts",
    "harness.extraction.plan",
    "harness.models.deepseek_v2",
)

REFUSE = """
import sys

REFUSED = ("torch", "vllm")

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise AssertionError(f"{name} was imported")

sys.meta_path.insert(0, Refuse())
"""

IMPORT = """
import importlib, json
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(name for name in sys.modules if name.partition(".")[0] in ("torch", "vllm"))))
"""


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("modules", [MODULES[:1], MODULES], ids=["package", "every ground and first floor module"])
def test_importing_imports_neither_torch_nor_vllm(modules: tuple[str, ...]) -> None:
    done = _run(REFUSE + IMPORT, *modules)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [], done.stdout


def test_check_all_needs_no_more_than_nox_brings() -> None:
    ours = 'REFUSED = ("griffe", "jinja2", "rich", "numpy", "safetensors", "pytest", "torch", "vllm")'
    code = REFUSE.replace('REFUSED = ("torch", "vllm")', ours)
    done = _run(
        f"{code}\nfrom harness import check_all\nfrom harness.commands import check_all as command\n"
        "print(command._asked(['-k', 'reply', '--dtype', 'bfloat16']).results('0.16.0'), check_all.__name__)"
    )
    assert (done.stdout, done.stderr) == ("0.16.0-cpu-bfloat16 harness.check_all\n", "")


def test_the_finder_of_this_test_does_refuse() -> None:
    done = _run(REFUSE + IMPORT, "torch")
    assert "torch was imported" in done.stderr, done.stderr
