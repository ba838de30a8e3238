"""What reading vLLM's sources gave, 0.11.0 to 0.33.0, fact by fact: ``harness diff`` has to tell each of them.

A fact is told when its change shows between the two pinned releases around it, and nowhere else. No network: the
surfaces are those that ``snapshots/`` keeps.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import pytest
import snapshots_on_disk

from harness import diff, releases

if TYPE_CHECKING:
    from collections.abc import Mapping

# Kind, object, and words of the change; the first pinned release that has it.
FACTS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "a second phase": ("added", "MultiprocExecutor.sample_tokens", "grammar_output", ("0.11.1",)),
    "the second phase is owed": ("recorded live", "test_steps[executor-mp-tp2-skipped-once]", "State", ("0.11.1",)),
    "rpc(unique_reply_rank=0) is bare": (
        *("recorded live", "test_first_rank[executor-mp-tp1]", "one list less"),
        ("0.11.1",),
    ),
    "Scheduler needs block_size": ("parameter required", "Scheduler.__init__", "block_size", ("0.11.1",)),
    "Scheduler takes hash_block_size": ("parameter added", "Scheduler.__init__", "hash_block_size=None", ("0.20.2",)),
    "Request takes no eos_token_id": ("parameter removed", "Request.__init__", "eos_token_id", ("0.17.1",)),
    "is_encoder_decoder can be given": (
        "parameter added",
        "SchedulerConfig",
        "is_encoder_decoder=False",
        ("0.11.1",),
    ),
    "is_encoder_decoder must be given": (
        *("parameter required", "SchedulerConfig", "is_encoder_decoder had the default False"),
        ("0.12.0",),
    ),
    "configs refuse what they lack": ("changed", "config(extra=)", "new: 'forbid'", ("0.16.0",)),
    "async scheduling is decided later": (
        *("default changed", "SchedulerConfig", "async_scheduling: False -> None"),
        ("0.14.1",),
    ),
    "prefix caching is on": ("default changed", "CacheConfig", "enable_prefix_caching: None -> True", ("0.12.0",)),
    "chunked prefill is on": (
        "default changed",
        "SchedulerConfig",
        "enable_chunked_prefill: None -> True",
        ("0.11.1",),
    ),
    "the group planner takes no specs": (
        *("parameter removed", "get_kv_cache_config_from_groups", "kv_cache_specs"),
        ("0.12.0",),
    ),
    "the planner moved": (
        *("moved", "get_kv_cache_config_from_groups", "kv_cache_utils.get_kv_cache_config_from_groups -> "),
        ("0.33.0",),
    ),
    "warm-up is a step of its own": ("added", "Executor.compile_or_warm_up_model", "", ("0.27.1",)),
    "the KV layout is negotiated": ("added", "Executor.set_kv_cache_layout", "", ("0.29.0",)),
    "Python": ("changed", "requirements", "python", ("0.11.1", "0.20.2", "0.32.0")),
    "torch": ("changed", "requirements", "torch", ("0.12.0", "0.15.1", "0.20.2", "0.27.1", "0.33.0")),
    "transformers": (
        *("changed", "requirements", "transformers"),
        ("0.11.1", "0.19.1", "0.24.0", "0.29.0", "0.31.0", "0.32.0", "0.33.0"),
    ),
    "model runner V2 is there": ("added", "GPUModelRunner.execute_model", "", ("0.12.0",)),
    "some models run on V2": ("added", "DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES", "", ("0.22.1",)),
    "other models run on V2": (
        *("changed", "DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES", ""),
        ("0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.27.1", "0.28.0"),
    ),
    "all models run on V2": ("removed", "DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES", "", ("0.29.0",)),
    "the old embedding method is gone": ("removed", "DeepseekV2Model.get_input_embeddings", "", ("0.11.1",)),
    "the new embedding method is there": ("added", "DeepseekV2Model.embed_input_ids", "", ("0.11.1",)),
    "DeepSeek supports EAGLE-3": ("changed", "DeepseekV2ForCausalLM.bases", "SupportsEagle3", ("0.18.1",)),
    "Kimi K2.5 is there": (
        "added",
        "KimiK25ForConditionalGeneration.language_model",
        "DeepseekV2Model(",
        ("0.15.1",),
    ),
    "Kimi K2.5 has its decoder a level deeper": (
        *("changed", "KimiK25ForConditionalGeneration.language_model", "architectures=['DeepseekV2ForCausalLM']"),
        ("0.16.0",),
    ),
    "Kimi K2.5 supports EAGLE-3": ("changed", "KimiK25ForConditionalGeneration.bases", "SupportsEagle3", ("0.18.1",)),
    "vLLM extracts hidden states itself": ("added", "ExampleHiddenStatesConnector.bases", "", ("0.17.1",)),
    "prints are no longer prefixed": ("removed", "_add_prefix", "", ("0.31.0",)),
    "log records are prefixed": ("added", "set_vllm_process_name", "", ("0.31.0",)),
}


@functools.cache
def changes() -> Mapping[str, list[diff.Change]]:
    """What changed with each pinned release but the oldest."""
    found = {}
    surfaces = snapshots_on_disk.surfaces()
    for before, after in itertools.pairwise(surfaces):
        live = (diff.snapshots(snapshots_on_disk.SNAPSHOTS / version) for version in (before, after))
        found[after] = [*diff.compare(surfaces[before], surfaces[after]), *diff.recorded(*live)]
    return found


def test_the_surface_of_every_pinned_release_is_kept() -> None:
    assert list(snapshots_on_disk.surfaces()) == [release.version for release in releases.load()]


@pytest.mark.parametrize("fact", FACTS)
def test_fact_is_told_of_its_release_and_of_no_other(fact: str) -> None:
    kind, name, words, expected = FACTS[fact]
    told = tuple(
        release
        for release, found in changes().items()
        if any((each.kind, each.name) == (kind, name) and words in each.detail for each in found)
    )
    assert told == expected, f"{fact}: told of {told}, true of {expected}"


def test_what_it_asks_of_torch_and_python_is_what_the_rows_pin() -> None:
    for release, surface in snapshots_on_disk.surfaces().items():
        for build in releases.find(release).builds.values():
            asked = surface["requirements"].parameters
            assert f"torch =={build.torch}" in asked, f"{release}: {asked}"
            python = ",".join(sorted(str(build.python).split(",")))
            assert f"python {python}" in asked, f"{release}: {asked}, pinned {python}"
