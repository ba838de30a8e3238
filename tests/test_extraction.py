from __future__ import annotations

from pathlib import Path

import pytest

from harness import releases
from harness.clients.contract import EngineSpec, input_ids
from harness.clients.extraction import refusals
from harness.clients.extraction.arguments import engine_arguments
from harness.clients.extraction.refusals import Refusal

FOLDER = Path("/private")


def test_an_output_is_the_input_of_the_next_layer() -> None:
    assert input_ids((4, 0, 2)) == [5, 1, 3]


def test_layers_are_asked_for_by_input_and_in_the_order_in_which_vllm_gives_them() -> None:
    speculative = engine_arguments((4, 0, 2), FOLDER, "cpu")["speculative_config"]
    assert speculative == {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}},
    }


@pytest.mark.parametrize(("device", "module"), [("cpu", "harness.clients.extraction.host"), ("cuda", None)])
def test_nothing_stands_in_where_there_is_an_accelerator(device: str, module: str | None) -> None:
    connector = engine_arguments((0,), FOLDER, device)["kv_transfer_config"]
    assert connector["kv_connector"] == "ExampleHiddenStatesConnector"
    assert connector["kv_connector_extra_config"] == {"shared_storage_path": "/private"}
    assert connector.get("kv_connector_module_path") == module


def test_pipeline_stages_are_refused_before_anything_is_looked_up() -> None:
    refused = refusals.reason(Path("/nowhere"), EngineSpec(model="", layers=(0,), pipeline_parallel_size=2))
    assert refused is not None
    assert "pipeline" in refused


def _package(root: Path, file: str, text: str) -> Path:
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("holds", "lacks", "text", "applies"),
    [
        ("no spec", "", "assert x, 'no spec'", True),
        ("no spec", "", "pass", False),
        ("", "set_layers", "pass", True),
        ("", "set_layers", "self.set_layers()", False),
    ],
)
def test_a_reason_is_told_by_what_a_file_holds(
    tmp_path: Path, holds: str, lacks: str, text: str, applies: bool
) -> None:
    refusal = Refusal(
        reason="r", releases=(), file="v1/runner.py", evidence="", device="cpu", holds=holds, lacks=lacks
    )
    root = _package(tmp_path, "v1/runner.py", text)
    assert refusal.applies(root, "cpu") is applies
    assert refusal.applies(root, "cuda") is False


@pytest.mark.parametrize(("holds", "applies"), [("", True), ("no spec", False)])
def test_a_missing_file_lacks_everything(tmp_path: Path, holds: str, applies: bool) -> None:
    refusal = Refusal(reason="r", releases=(), file="v1/runner.py", evidence="", holds=holds, lacks="x")
    assert refusal.applies(tmp_path, "cuda") is applies


def test_the_first_reason_is_given_with_its_place(tmp_path: Path) -> None:
    first = refusals.load()[0]
    assert refusals.reason(tmp_path, EngineSpec(model="", layers=(0,))) == f"{first.reason} ({first.file})"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_release_is_served_or_has_a_reason(device: releases.Device) -> None:
    """Served on the CPU: seen live, 0.25.1 to 0.32.0. On CUDA 0.33.0 is one more, by its files alone."""
    refused = {release for row in refusals.load() if row.device in {"", device} for release in row.releases}
    builds = [release.version for release in releases.with_build(device)]
    served = [version for version in builds if version not in refused]
    assert served == builds[builds.index("0.25.1") :], refused


@pytest.mark.parametrize("row", refusals.load(), ids=lambda row: row.reason)
def test_a_row_says_all_that_a_user_needs(row: Refusal) -> None:
    known = {release.version for release in releases.load()}
    assert set(row.releases) <= known
    assert row.releases
    assert row.evidence.strip()
    assert not (row.holds and row.lacks), "one of them decides"
