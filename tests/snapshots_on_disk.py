"""The recorded capabilities of the pinned releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.capabilities import Capabilities

SNAPSHOTS = Path(__file__).parent.parent / "snapshots"


def recorded() -> dict[str, dict[str, Any]]:
    """What ``cases/test_capabilities.py`` recorded, by release."""
    return {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))["test_capabilities"]
        for path in sorted(SNAPSHOTS.glob("*/test_capabilities.json"))
    }


def capabilities_of(row: dict[str, Any]) -> Capabilities:
    return Capabilities(**{name: value for name, value in row.items() if name != "generation"})
