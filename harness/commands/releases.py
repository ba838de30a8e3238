"""``harness releases``: the pinned matrix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    import argparse

HELP = "the pinned vLLM releases"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    from harness import releases

    rows: list[dict[str, str]] = []
    for release in releases.load():
        row = {"release": release.version, "torch": next(iter(release.builds.values())).torch}
        row |= {device: f"{build.distribution} {build.version}" for device, build in release.builds.items()}
        row |= {device: f"none: {reason}" for device, reason in release.missing.items()}
        row["generation"] = _recorded_generation(release.version)
        row["evidence"] = _last_verdict(release.version)
        rows.append(row)
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'release':<9}{'torch':<8}{'cpu':<23}{'cuda':<14}{'generation':<19}last evidence")
    for row in rows:
        cpu = "none" if row["cpu"].startswith("none") else row["cpu"]
        print(
            f"{row['release']:<9}{row['torch']:<8}{cpu:<23}{row['cuda']:<14}{row['generation']:<19}{row['evidence']}"
        )
    for row in rows:
        for device in ("cpu", "cuda"):
            if row[device].startswith("none: "):
                print(f"\n{row['release']} on {device}: {row[device].removeprefix('none: ')}")
    return 0


def _recorded_generation(version: str) -> str:
    """From the release's snapshots; empty if it has none."""
    from harness import sources

    path = sources.suite() / "snapshots" / version / "test_capabilities.json"
    if not path.exists():
        return ""
    recorded: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["test_capabilities"]
    return recorded["generation"]


def _last_verdict(version: str) -> str:
    """Of the evidence that `harness check` wrote below this folder."""
    from harness import evidence

    said = []
    for path in sorted(Path("results").glob(f"{version}-*/evidence.json")):
        try:
            record = evidence.read(path)
        except UsageError:
            said.append(f"{path.parent.name}: unreadable")
        else:
            said.append(f"{record['settings']['device']}: {record['verdict']}, {record['started'][:10]}")
    return "; ".join(said)
