"""What an engine is opened with, of what its spec says."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.contract import EngineSpec
from harness.engine_arguments import engine_arguments


@pytest.mark.parametrize(
    ("said", "further", "given"),
    [
        (False, {}, False),
        (True, {}, True),
        (None, {}, "vLLM's default"),
        (None, {"async_scheduling": False}, False),
        (False, {"async_scheduling": True}, True),
    ],
)
def test_asynchronous_scheduling_is_left_to_vllm_only_where_the_spec_says_so(
    said: bool | None, further: dict[str, Any], given: object
) -> None:
    spec = EngineSpec(model="model", layers=(0,), async_scheduling=said, extra_arguments=further)
    assert engine_arguments(spec).get("async_scheduling", "vLLM's default") == given
