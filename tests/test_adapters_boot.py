"""What each adapter asks of its vLLM to boot, to take a request, to call ranks and to close."""

from __future__ import annotations

from typing import Any

import fake_engine
import pytest
from fake_engine import Executor

from harness import adapters
from harness.clients.contract import EngineSpec
from harness.errors import NotApplicableError

boot = fake_engine.boot


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("single-phase", ["specs", "memory", "plan", "initialize"]),
        ("two-phase", ["specs", "memory", "plan", "initialize"]),
        ("explicit-warm-up", ["specs", "memory", "plan", "initialize", "warm up"]),
        ("negotiated-layout", ["specs", "layout", "memory", "plan", "initialize", "warm up"]),
        (
            "moved-planner",
            ["specs", "interleave groups", "layout", "memory", "plan groups", "initialize", "warm up"],
        ),
    ],
)
def test_boot_does_the_steps_of_its_generation(boot: Any, name: str, calls: list[str]) -> None:
    _adapter, made = boot(name)
    assert made == ["plugins", *calls]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("single-phase", {}),
        ("two-phase", {"block_size": 32}),
        ("explicit-warm-up", {"block_size": 64, "hash_block_size": 8}),
        ("moved-planner", {"block_size": 64, "hash_block_size": 8}),
    ],
)
def test_scheduler_gets_the_block_sizes_of_the_groups(boot: Any, name: str, sizes: dict[str, int]) -> None:
    adapter, _calls = boot(name)
    assert adapter.scheduler.sizes == sizes
    assert adapter.vllm_config.cache_config.block_size == 32
    assert adapter.vllm_config.cache_config.num_gpu_blocks == 123


def test_boot_that_fails_ends_the_workers(boot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(Executor, "shutdown", lambda _self: ended.append(True))
    with pytest.raises(ValueError, match="no memory left"):
        boot("two-phase", fails="plan")
    assert ended == [True]


@pytest.mark.parametrize(("name", "takes"), [("single-phase", True), ("two-phase", True), ("moved-planner", False)])
def test_request_gets_the_end_token_where_it_is_needed(boot: Any, name: str, takes: bool) -> None:
    adapter, _calls = boot(name)
    adapter.add("r0", (5, 6))
    (request,) = adapter.scheduler.waiting
    assert request.prompt == [5, 6]
    assert ("eos_token_id" in request.more) == takes


@pytest.mark.parametrize("name", adapters.GENERATIONS)
def test_one_ranks_reply_is_bare_in_every_generation(boot: Any, name: str) -> None:
    adapter, _calls = boot(name)
    assert adapter.rpc("who", arguments=(1,)) == [("who", 0, 1), ("who", 1, 1)]
    assert adapter.rpc_one("who", 1) == ("who", 1)


def test_raw_reply_is_left_as_it_is(boot: Any) -> None:
    assert boot("single-phase")[0].rpc("who", unique_reply_rank=0) == [("who", 0)]
    assert boot("two-phase")[0].rpc("who", unique_reply_rank=0) == ("who", 0)


def test_one_rank_cannot_be_asked_for_in_a_single_process(boot: Any) -> None:
    adapter, _calls = boot("two-phase", spec=EngineSpec(model="model", layers=(0,), executor_backend="uni"))
    with pytest.raises(NotApplicableError, match="unique_reply_rank"):
        adapter.rpc("who", unique_reply_rank=0)


def test_rank_of_an_executor_that_cannot_choose_one_is_not_applicable(boot: Any) -> None:
    """As Ray's, which replies with all ranks only."""
    adapter, _calls = boot("two-phase")

    def of_all(method: str, timeout: float, args: tuple[Any, ...]) -> list[Any]:
        return [(method, timeout, args)]

    adapter.executor.collective_rpc = of_all
    assert adapter.rpc("who", limit=1.0) == [("who", 1.0, ())]
    with pytest.raises(NotApplicableError, match="has no unique_reply_rank"):
        adapter.rpc("who", unique_reply_rank=0)


def test_closing_twice_ends_the_executor_once(boot: Any) -> None:
    adapter, calls = boot("two-phase")
    adapter.close()
    adapter.close()
    assert calls.count("shutdown") == 1
