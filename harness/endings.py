"""Which engine is used up by which case: engines are shared, and a case that leaves one unusable comes last on it.

A case marked ``ends_engine`` that is named here runs only on the engines that it is dealt to, so that each way to end
is tried with one worker and with several, through either client, without a boot of its own. One that is not named
here runs on every engine, after those: closing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .settings import ASYNC, CORE, MP, MP_TP2, Group, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# In this order: after a hang a worker no longer answers, after a kill it is gone. A raise shares an engine with none
# but the kill between calls: what it leaves behind would answer a call that is to hang. Left out is "uni", where the
# worker is the caller: what hangs or is killed there is the host (tests/test_remote.py).
_DEALT: Mapping[Group, tuple[str, ...]] = {
    Group(client="llm", setting=MP_TP2): ("test_call_after_a_raise", "test_worker_killed_between_calls"),
    Group(client="executor", setting=MP_TP2): ("test_hanging_worker_is_an_error", "test_worker_killed_in_a_call"),
    Group(client="llm", setting=ASYNC): ("test_hanging_worker_is_an_error",),
    Group(client="executor", setting=MP): ("test_call_after_a_raise", "test_worker_killed_between_calls"),
    Group(client="llm", setting=CORE): ("test_hanging_worker_is_an_error", "test_worker_killed_in_a_call"),
    # As the executor's, whose snapshots it is held to.
    Group(client="extract", setting=MP_TP2): ("test_hanging_worker_is_an_error", "test_worker_killed_in_a_call"),
    Group(client="extract", setting=MP): ("test_call_after_a_raise", "test_worker_killed_between_calls"),
}


def dealt() -> dict[str, list[Group]]:
    """Case by case, the engines of ours that it is dealt to."""
    return {case: [group for group in _DEALT if case in _DEALT[group]] for cases in _DEALT.values() for case in cases}


def turn(case: str, group: Group, groups: Sequence[Group] = ()) -> int | None:
    """When a case that ends engines comes on one of them: 1 is first; None if it does not run there.

    Somebody else's client, and a size without a setting of its own, get what ours has under a setting that is alike.
    Where the run's ``groups`` have the same engine on another checkpoint, that one is ended, and this one closed
    while all its workers are well, as real runs end.
    """
    if case not in dealt():
        return 1 + max(map(len, _DEALT.values()))
    plain = replace(group, model_kind="deepseek-v2")
    if group != plain and plain in groups:
        return None
    alike = [known for known in _DEALT if _alike(known.setting, group.setting)]
    alike.sort(key=lambda known: known.client != group.client)
    cases = _DEALT[alike[0]] if alike else ()
    return 1 + cases.index(case) if case in cases else None


def _alike(one: Setting, other: Setting) -> bool:
    return (one.executor_backend, one.engine_core_process, one.ranks > 1) == (
        other.executor_backend,
        other.engine_core_process,
        other.ranks > 1,
    )
