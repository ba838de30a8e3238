"""What an engine is opened with, so that vLLM extracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.clients.contract import input_ids

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOST = "harness.clients.extraction.host"


def wanted_ids(layers: Sequence[int]) -> list[int]:
    """The ids to ask for, in the order in which the states come, whatever the order they are asked for in."""
    return sorted(input_ids(layers))


def engine_arguments(layers: Sequence[int], folder: Path, device: str) -> dict[str, Any]:
    """The engine arguments of an extraction into ``folder``: the same from 0.17.1 to 0.33.0.

    The connector is vLLM's own class; on a CPU it comes through `host`.
    """
    connector: dict[str, Any] = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(folder)},
    }
    if device == "cpu":
        connector["kv_connector_module_path"] = HOST
    return {
        "speculative_config": {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": wanted_ids(layers)}},
        },
        "kv_transfer_config": connector,
    }
