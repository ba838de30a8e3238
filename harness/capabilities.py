"""Facts about a vLLM that decide how it is driven, worked out from its surface."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from . import surface as surfaces
from . import watched

if TYPE_CHECKING:
    from .surface import Surface


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """One field a fact; where it changed, release by release, is what the snapshots tell."""

    group_planner: bool
    """A KV planner by groups (since 0.11.0); without it no adapter applies."""
    sample_tokens: bool
    """The executor owes a second phase (since 0.11.1, v1/executor/multiproc_executor.py)."""
    bare_unique_reply: bool
    """``unique_reply_rank`` replies with the value, not a list of one (since 0.11.1, same file)."""
    scheduler_takes_block_size: bool
    """`Scheduler` needs ``block_size`` (since 0.11.1, v1/core/sched/scheduler.py)."""
    scheduler_takes_hash_block_size: bool
    """`Scheduler` takes ``hash_block_size`` (since 0.20.x, same file)."""
    request_takes_eos_token_id: bool
    """`Request` needs ``eos_token_id`` (up to 0.16.0, v1/request.py)."""
    explicit_warm_up: bool
    """The executor must be told to warm up (since 0.27.x, v1/executor/abstract.py)."""
    negotiated_layout: bool
    """The KV layout is agreed on before planning (since 0.29.0, v1/executor/abstract.py)."""
    moved_planner: bool
    """The KV planner lives in ``v1/core/kv_cache_planning.py`` (since 0.33.0)."""
    kimi_k25: bool
    """It has the multimodal wrapper of Kimi-K2.5 (since 0.15.0, model_executor/models/kimi_k25.py)."""

    def as_dict(self) -> dict[str, bool]:
        return asdict(self)


def of(surface: Surface) -> Capabilities:
    """The capabilities that a surface shows."""

    def takes(name: str, parameter: str) -> bool:
        return name in surface and parameter in surface[name].parameter_names

    rpc = surface.get("MultiprocExecutor.collective_rpc")
    planner = surface.get("get_kv_cache_configs")
    return Capabilities(
        group_planner=planner is not None,
        sample_tokens="MultiprocExecutor.sample_tokens" in surface,
        bare_unique_reply=rpc is not None and _picks_first_response(rpc.source),
        scheduler_takes_block_size=takes("Scheduler.__init__", "block_size"),
        scheduler_takes_hash_block_size=takes("Scheduler.__init__", "hash_block_size"),
        request_takes_eos_token_id=takes("Request.__init__", "eos_token_id"),
        explicit_warm_up="Executor.compile_or_warm_up_model" in surface,
        negotiated_layout="Executor.set_kv_cache_layout" in surface,
        moved_planner=planner is not None and planner.place.startswith("v1.core.kv_cache_planning"),
        kimi_k25="KimiK25ForConditionalGeneration.forward" in surface,
    )


def installed() -> Capabilities:
    """The capabilities of the vLLM installed here; imports and boots nothing."""
    rows = (*watched.EXECUTOR, *watched.SCHEDULER, *watched.PLANNER, *watched.MODELS)
    return of(surfaces.read(surfaces.installed_root(), rows))


def _picks_first_response(source: str) -> bool:
    """Whether ``collective_rpc`` has a return of ``responses[0]``, alone or on a condition.

    No signature shows it; the reply cases check it live.
    """
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if isinstance(node, ast.Return) and node.value is not None:
            value = node.value.body if isinstance(node.value, ast.IfExp) else node.value
            if isinstance(value, ast.Subscript) and ast.unparse(value) == "responses[0]":
                return True
    return False
