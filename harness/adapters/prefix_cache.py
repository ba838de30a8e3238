"""What a request needs where the scheduler caches prefixes.

`EngineCore.__init__` makes the hasher (v1/engine/core.py, 0.11.0 to 0.32.0); who drives the scheduler without one
dies in the block pool at the first full block.
"""

from __future__ import annotations

import hashlib
import pickle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def block_hasher(block_size: int) -> Callable[[Any], list[Any]]:
    """The hasher of a request's blocks, of ``block_size`` tokens each."""
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    init_none_hash(_digest)
    hasher: Callable[[Any], list[Any]] = get_request_block_hasher(block_size, _digest)
    return hasher


def _digest(value: Any) -> bytes:
    return hashlib.sha256(pickle.dumps(value)).digest()
