"""What rounds say: medians, ratios, and the table of them."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from harness.report.text import aligned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Ours over each of these, where both were measured.
OURS = "extract"
BASELINES = ("plain", "plain-llm", "reply", "connector")


def summary(tokens: int, seconds: Sequence[float]) -> dict[str, Any]:
    """Tokens a second of some rounds: every one, and the least, the median and the most."""
    each = [round(tokens / second, 1) for second in seconds]
    if not each:
        return {"tokens_per_second": []}
    return {
        "tokens_per_second": each,
        "min": min(each),
        "median": round(statistics.median(each), 1),
        "max": max(each),
    }


def ratios(ways: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Our median over that of each baseline, by ``extract/<baseline>``."""
    medians = {name: way["median"] for name, way in ways.items() if "median" in way}
    if OURS not in medians:
        return {}
    return {f"{OURS}/{name}": round(medians[OURS] / medians[name], 3) for name in BASELINES if name in medians}


def table(ways: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line a way: tokens a second, least, median, most, rounds; or that it failed."""
    rows = [("way", "", "min", "median", "max", "rounds")]
    for name, way in ways.items():
        figures = [f"{way[key]:,.0f}" if key in way else "-" for key in ("min", "median", "max")]
        rounds = "failed" if way.get("error") else str(len(way["tokens_per_second"]))
        rows.append((name, way["title"], *figures, rounds))
    return aligned(rows, right={2, 3, 4, 5})
