"""The structure of ``collective_rpc`` replies: where a reply is nested one list deeper, it shows here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.delivery import require_tensors
from harness.errors import LostTensorsError, NotApplicableError
from harness.findings import expect
from harness.structure import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.shared_engine import SharedEngine

CAUSE = (
    "the nesting of collective_rpc replies changed: since 0.11.1 a call with unique_reply_rank replies with the "
    "bare value, before with a list of one (v1/executor/multiproc_executor.py)"
)
ADVICE = "take the reply as the snapshot's new structure shows it; never index [0] without looking at the release"


@pytest.fixture
def captured(engine: SharedEngine, prompts: list[list[int]]) -> SharedEngine:
    """An engine whose last forward was that of the first prompt."""
    engine.offer("rpc")
    engine.capture(prompts[:1])
    return engine


def test_all_ranks(captured: SharedEngine, matches: Callable[..., None]) -> None:
    """Without ``unique_reply_rank``, one reply a rank, in a list."""
    matches(describe(captured.call("rpc", "harness_tensors")), cause=CAUSE, advice=ADVICE)


def test_first_rank(captured: SharedEngine, matches: Callable[..., None]) -> None:
    """With ``unique_reply_rank=0``, the first rank's reply."""
    matches(describe(captured.call("rpc", "harness_tensors", unique_reply_rank=0)), cause=CAUSE, advice=ADVICE)


def test_last_rank(captured: SharedEngine, matches: Callable[..., None]) -> None:
    """With ``unique_reply_rank`` of the last rank, that rank's reply, of the same structure."""
    last = captured.spec.ranks - 1
    matches(describe(captured.call("rpc", "harness_tensors", unique_reply_rank=last)), cause=CAUSE, advice=ADVICE)


def test_nothing_captured(captured: SharedEngine, matches: Callable[..., None]) -> None:
    """A worker that returns None: what arrives, from all ranks and, where there is such a call, from one."""
    captured.call("rpc", "harness_forget")
    replies: dict[str, Any] = {"all ranks": describe(captured.call("rpc", "harness_tensors"))}
    if captured.spec.executor_backend == "mp" and captured.group.client != "llm":
        replies["first rank"] = describe(captured.call("rpc", "harness_tensors", unique_reply_rank=0))
    matches(replies, cause=CAUSE, advice=ADVICE)


def test_one_rank_unwrapped(engine: SharedEngine) -> None:
    """The adapter gives one rank's reply bare, whatever the release does."""
    engine.offer("rpc_one")
    everybody = engine.call("identities")
    for rank in range(engine.spec.ranks):
        one = engine.call("rpc_one", "harness_identity", rank)
        expect(
            one == everybody[rank],
            expected=f"rank {rank}: {everybody[rank]}",
            got=repr(one),
            cause="this is the reply of another rank" if one in everybody else CAUSE,
            advice="correct Adapter.rpc_one for this generation",
        )


def test_tensors_survive(captured: SharedEngine) -> None:
    """Tensors arrive as tensors, except through the EngineCore process, where their loss is noticed.

    The layers are those of all pipeline stages: each stage replies with its own.
    """
    reply = captured.call("rpc", "harness_tensors")
    if captured.spec.engine_core_process:
        with pytest.raises(LostTensorsError) as caught:
            require_tensors(reply[0])
        assert "VLLM_ENABLE_V1_MULTIPROCESSING=0" in str(caught.value), caught.value
        return
    stages = reply[:: captured.spec.tensor_parallel_size]
    tensors = [tensor for stage in stages for tensor in require_tensors(stage)]
    expect(
        len(tensors) == len(captured.spec.layers),
        expected=f"{len(captured.spec.layers)} tensors, one a layer",
        got=f"{len(tensors)} tensors: {describe(tensors)}",
        cause=CAUSE,
        advice=ADVICE,
    )


def test_lost_tensors_look_like_this(captured: SharedEngine, matches: Callable[..., None]) -> None:
    """What is left of a tensor that crossed into the EngineCore process and back."""
    if not captured.spec.engine_core_process:
        raise NotApplicableError("there is no EngineCore process to cross")
    matches(
        describe(captured.call("rpc", "harness_tensors")),
        cause="how utility replies are serialized between EngineCore and its caller changed (v1/serial_utils.py)",
        advice="deliver bytes or files from the worker, as harness.worker.encode does",
    )
