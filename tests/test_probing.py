"""Of ``harness.capabilities``: ``cases`` holds the module of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fake_vllm
import pytest

from harness import capabilities, surface

if TYPE_CHECKING:
    from pathlib import Path

NONE_OF_THEM = dict.fromkeys(capabilities.Capabilities.__dataclass_fields__, False)
OLDEST = {**NONE_OF_THEM, "group_planner": True, "request_takes_eos_token_id": True}
TWO_PHASE = {**OLDEST, "sample_tokens": True, "bare_unique_reply": True, "scheduler_takes_block_size": True}
NO_EOS = {**TWO_PHASE, "request_takes_eos_token_id": False, "scheduler_takes_hash_block_size": True}


def _probe(folder: Path, files: dict[str, str]) -> capabilities.Capabilities:
    return capabilities.of(surface.read(fake_vllm.write(folder, files)))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (fake_vllm.TOO_OLD, {**OLDEST, "group_planner": False}),
        (fake_vllm.OLDEST, OLDEST),
        (fake_vllm.TWO_PHASE, TWO_PHASE),
        (fake_vllm.NO_EOS, NO_EOS),
        (fake_vllm.WARM_UP, {**NO_EOS, "explicit_warm_up": True}),
        (fake_vllm.LAYOUT, {**NO_EOS, "explicit_warm_up": True, "negotiated_layout": True}),
        (
            fake_vllm.PLANNING,
            {**NO_EOS, "explicit_warm_up": True, "negotiated_layout": True, "moved_planner": True},
        ),
        ({}, NONE_OF_THEM),
    ],
    ids=["too old", "0.11.0", "0.11.1", "0.20.2", "0.27.1", "0.29.0", "0.33.0", "empty"],
)
def test_capabilities_of_a_source_tree(tmp_path: Path, files: dict[str, str], expected: dict[str, bool]) -> None:
    assert _probe(tmp_path, files).as_dict() == expected


@pytest.mark.parametrize(
    ("body", "bare"),
    [
        ("return responses", False),
        ("return responses[0]", True),
        ("return responses[0] if output_rank is not None else responses", True),
        ("return responses if output_rank is None else [responses[0]]", False),
        ("return [responses[0]]", False),
        ("first = responses[0]\n        return responses", False),
        ("# return responses[0]\n        return responses", False),
        ("def inner():\n            return responses[0]\n        return inner()", True),
    ],
)
def test_bare_reply_is_read_from_the_return(tmp_path: Path, body: str, bare: bool) -> None:
    code = (
        f"class MultiprocExecutor:\n    def collective_rpc(self, method, unique_reply_rank=None):\n        {body}\n"
    )
    assert _probe(tmp_path, {fake_vllm.MULTIPROC: code}).bare_unique_reply is bare


def test_installed_reads_the_vllm_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.install(tmp_path, fake_vllm.TWO_PHASE)
    monkeypatch.syspath_prepend(tmp_path)
    assert capabilities.installed().as_dict() == TWO_PHASE
