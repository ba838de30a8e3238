"""What the suite costs beyond the boots it cannot do without, side by side in one run.

``python bench/suite_cost.py RELEASE`` with the harness importable (any environment with its dependencies): each
engine setting of the suite once as a bare boot, generate and exit, one after the other, then the whole suite.
Prints a table and writes ``bench/results/suite-cost-<release>.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import environments, processes, releases, settings


def _timed(command: list[str], variables: dict[str, str]) -> float:
    start = time.monotonic()
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return round(time.monotonic() - start, 2)


def main(version: str) -> None:
    environment = environments.ensure(releases.find(version).build("cpu"))
    python = str(environment.python)
    build = environment.build
    variables = {**build.environment, **processes.child_variables()}
    with tempfile.TemporaryDirectory() as folder:
        write = f"import pathlib; from harness.models import deepseek_v2; deepseek_v2.write(pathlib.Path({folder!r}))"
        subprocess.run([python, "-c", write], env=variables, check=True)
        boots = {}
        for group in settings.plan([], [], "deepseek-v2"):
            setting = group.setting
            boots[group.name] = _timed(
                [
                    *(python, str(HERE / "bare_boot.py"), folder, setting.executor_backend),
                    *(str(setting.tensor_parallel_size), str(int(setting.engine_core_process))),
                ],
                variables,
            )
            print(f"bare {group.name:<18}{boots[group.name]:>8.1f} s", flush=True)
        evidence = str(Path(folder) / "results" / "evidence.json")
        suite = _timed(
            [python, "-m", "harness", "check", "--model-kind", "deepseek-v2", "--evidence", evidence], variables
        )
    total = round(sum(boots.values()), 2)
    print(
        f"{'all bare boots':<23}{total:>8.1f} s\n{'suite, warm':<23}{suite:>8.1f} s\n"
        f"{'ratio':<23}{suite / total:>8.2f}"
    )
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    record = {
        "release": version,
        "cores": len(os.sched_getaffinity(0)),
        "bare_boots_seconds": boots,
        "suite_seconds": suite,
        "ratio": round(suite / total, 3),
    }
    (results / f"suite-cost-{version}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
