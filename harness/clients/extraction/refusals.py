"""Where vLLM's own extraction cannot serve DeepseekV2, and why: data, told by what the installed files hold."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from harness.clients.contract import EngineSpec


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One reason, and the ``file`` below the vllm package that shows it.

    It shows it by holding ``holds``, by not holding ``lacks``, or, with neither, by not being there. ``releases`` are
    the pinned ones it was found in; ``error`` is what vLLM raises there.
    """

    reason: str
    releases: tuple[str, ...]
    file: str
    evidence: str
    error: str = ""
    device: str = ""
    holds: str = ""
    lacks: str = ""
    link: str = ""

    def applies(self, root: Path, device: str) -> bool:
        """Whether it is so for a device, in the vllm package at ``root``."""
        if self.device not in {"", device}:
            return False
        try:
            text = (root / self.file).read_text(encoding="utf-8")
        except FileNotFoundError:
            return not self.holds
        if self.holds:
            return self.holds in text
        return bool(self.lacks) and self.lacks not in text


@functools.cache
def load() -> tuple[Refusal, ...]:
    """All of them, in the order in which vLLM would come to them."""
    text = importlib.resources.files(__package__).joinpath("refusals.toml").read_text(encoding="utf-8")
    return tuple(Refusal(**{**row, "releases": tuple(row["releases"])}) for row in tomllib.loads(text)["refusal"])


def reason(root: Path, spec: EngineSpec) -> str | None:
    """Why the vllm package at ``root`` cannot extract from such an engine, or None if it can."""
    if spec.pipeline_parallel_size > 1:
        return "gives states of the last pipeline stage only (model_executor/models/deepseek_v2.py)"
    found = next((refusal for refusal in load() if refusal.applies(root, spec.device)), None)
    return f"{found.reason} ({found.link or found.file})" if found else None
