"""What single releases need beyond their generation, each with the capability that asks for it.

A shim whose condition no pinned release meets is dead code; tests/test_shims.py fails then and names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.capabilities import Capabilities


@dataclass(frozen=True, kw_only=True)
class Shim:
    name: str
    needed: Callable[[Capabilities], bool]


REQUEST_EOS_TOKEN_ID = Shim(
    name="Request(eos_token_id=)",
    needed=lambda has: has.request_takes_eos_token_id,
)
SCHEDULER_BLOCK_SIZE_FROM_CONFIG = Shim(
    name="Scheduler(block_size=) from the cache config",
    needed=lambda has: has.scheduler_takes_block_size and not has.scheduler_takes_hash_block_size,
)
SCHEDULER_WITHOUT_BLOCK_SIZE = Shim(
    name="Scheduler() without block_size",
    needed=lambda has: not has.scheduler_takes_block_size,
)
UNIQUE_REPLY_IN_A_LIST = Shim(
    name="collective_rpc(unique_reply_rank=) replies with a list of one",
    needed=lambda has: not has.bare_unique_reply,
)

SHIMS = (
    REQUEST_EOS_TOKEN_ID,
    SCHEDULER_BLOCK_SIZE_FROM_CONFIG,
    SCHEDULER_WITHOUT_BLOCK_SIZE,
    UNIQUE_REPLY_IN_A_LIST,
)


def request_arguments(has: Capabilities) -> dict[str, Any]:
    """Arguments of `Request` that only some releases take."""
    return {"eos_token_id": None} if REQUEST_EOS_TOKEN_ID.needed(has) else {}


def scheduler_block_sizes(has: Capabilities, vllm_config: Any, kv_cache_config: Any) -> dict[str, int]:
    """The block sizes that `Scheduler` takes, worked out as `EngineCore.__init__` of the release does."""
    if SCHEDULER_WITHOUT_BLOCK_SIZE.needed(has):
        return {}
    if SCHEDULER_BLOCK_SIZE_FROM_CONFIG.needed(has):
        return {"block_size": vllm_config.cache_config.block_size}
    from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes

    block_size, hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    return {"block_size": block_size, "hash_block_size": hash_block_size}
