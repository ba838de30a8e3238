"""Releases whose interpreter is a fake, for `harness check-all`: processes, files and signals are real."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
import records
from records import SOUND

from harness import __version__, check_all, environments, evidence, hardware, releases, sources, uv, variables
from harness.commands import check_all as command
from harness.environments import Environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.options import Options
    from harness.releases import Build

BUILDS = [releases.find(version).build("cpu") for version in ("0.15.1", "0.16.0", "0.17.1")]
FAKE = """
    import json, os, sys, time
    from pathlib import Path

    release, plan = Path(sys.argv[1]).parent.parent.name, json.loads(os.environ["FAKE_PLAN"])
    said = plan[release]
    with Path("asked").open("a") as asked:
        asked.write(json.dumps([release, *sys.argv[3:]]) + "\\n")
    if sys.argv[3:] == ["harness", "probe", "--json"]:
        print(json.dumps(said["facts"]))
        sys.exit()
    if "evidence" in said:
        path = Path(sys.argv[sys.argv.index("--evidence") + 1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name("new").write_text(said["evidence"])
        path.with_name("new").replace(path)
    if said.get("hangs"):
        try:
            Path("hanging").touch()
            time.sleep(60)
        except KeyboardInterrupt:
            Path("closed").touch()
    sys.exit(said.get("code", 0))
"""


class World:
    """What each fake release does, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, dict[str, Any]] = {}
        self.made: list[str] = []
        self.there: list[str] = []
        self.removed: list[str] = []

    def release(self, version: str, cases: Sequence[evidence.CaseResult] = SOUND, **said: Any) -> None:
        text = json.dumps(self.record(version, cases).as_dict())
        facts = self.facts(version)
        self.plan[version] = {"facts": facts, "evidence": text, "code": 0, **said}

    def record(self, version: str, cases: Sequence[evidence.CaseResult] = SOUND, **changes: Any) -> evidence.Evidence:
        return records.record(
            version,
            cases,
            **{
                "harness": __version__,
                "suite": sources.digest(sources.suite(), version),
                "environment": self.facts(version),
                **changes,
            },
        )

    def facts(self, version: str) -> dict[str, Any]:
        build = releases.find(version).build("cpu")
        return {
            **check_all._facts(build),
            "devices": hardware.describe("cpu"),
            "variables": variables.bound(build.environment, os.environ),
            "generation": "two-phase",
            "capabilities": {"sample_tokens": True},
            "packages": {"torch": build.torch},
        }

    def kept(self, version: str) -> evidence.Evidence:
        return check_all.kept(releases.find(version).build("cpu"), self.evidence(version), asked())

    def evidence(self, version: str) -> Path:
        return self.folder / "results" / f"{version}-cpu" / "evidence.json"

    def asked(self, command: str) -> list[list[str]]:
        """What the fake releases were asked for, without the place of the evidence."""
        path = self.folder / "asked"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        rows = [row[: row.index("--evidence")] if "--evidence" in row else row for row in rows]
        return [[row[0], *row[3:]] for row in rows if row[1:3] == ["harness", command]]

    def environment(self, build: Build) -> Environment:
        path = self.folder / "environments" / build.release
        (path / "bin").mkdir(parents=True, exist_ok=True)
        (path / "bin" / "python").write_text(
            f'#!/bin/sh\nexec {sys.executable} {self.folder / "fake.py"} "$0" "$@"\n', encoding="utf-8"
        )
        (path / "bin" / "python").chmod(0o755)
        return Environment(build=build, path=path, created=False, seconds=0.0)

    def run(self, *arguments: str, prune: bool = False) -> int:
        os.environ["FAKE_PLAN"] = json.dumps(self.plan)
        return check_all.check_all(BUILDS, arguments, asked(*arguments), prune=prune, as_json=False)


def asked(*arguments: str) -> Options:
    return command._asked(arguments)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    (tmp_path / "fake.py").write_text(textwrap.dedent(FAKE), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_PLAN", "")

    def ensure(build: Build) -> Environment:
        world.made.append(build.release)
        world.there.append(build.release)
        return world.environment(build)

    def existing(build: Build) -> Environment | None:
        return world.environment(build) if build.release in world.there else None

    def remove(build: Build) -> None:
        world.there.remove(build.release)
        world.removed.append(build.release)

    monkeypatch.setattr(environments, "ensure", ensure)
    monkeypatch.setattr(environments, "existing", existing)
    monkeypatch.setattr(environments, "remove", remove)
    monkeypatch.setattr(uv, "prune", lambda: world.removed.append("cache"))
    for build in BUILDS:
        world.release(build.release)
    return world


def rows(said: str) -> dict[str, str]:
    """The table at the end, by release."""
    table = said.rpartition("\n\n")[2].splitlines()
    assert table[0].split() == ["release", "verdict", "took", "cases"], said
    return {line.split()[0]: line.partition(" ")[2].strip() for line in table[1:]}
