"""Which engines and cases a run needs; and the list of cases, held to what pytest collects from the suite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import flow
import gated
import pytest

from harness import endings, needs, settings, sources, target
from harness.errors import UsageError
from harness.needs import Request
from harness.settings import MP, MP_TP2, TIGHT, UNI, Group

if TYPE_CHECKING:
    from pathlib import Path

KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {**gated.CONFIG, "quantization_config": {"quant_method": "compressed-tensors"}},
}


def _work_out(request: Request, config: dict[str, Any] | None = None, **devices: Any) -> needs.Needs:
    model = None if config is None else target.of_config(config, config.get("text_config", config))
    return needs.work_out(request, model, {**gated.CPU, **devices})


def _engines(request: Request, config: dict[str, Any] | None = None) -> list[str]:
    return [group.name for group in _work_out(request, config).groups]


ALONE = {"prompts": 1, "longest_prompt": 100, "max_num_batched_tokens": 128, "prefix_caching": False}


@pytest.mark.parametrize(
    ("changes", "engines"),
    [
        (ALONE, ["executor-uni-tp1"]),
        ({**ALONE, "executor_backend": "mp"}, ["executor-mp-tp1"]),
        ({**ALONE, "tensor_parallel_size": 2}, ["executor-mp-tp2"]),
        ({**ALONE, "tensor_parallel_size": 8}, ["executor-mp-tp8"]),
        ({**ALONE, "pipeline_parallel_size": 2}, ["executor-mp-pp2"]),
        ({**ALONE, "tensor_parallel_size": 8, "pipeline_parallel_size": 2}, ["executor-mp-tp8-pp2"]),
        ({**ALONE, "tensor_parallel_size": 2, "executor_backend": "ray"}, ["executor-ray-tp2"]),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, ["executor-mp-tp2-pp2", "executor-tight-tp2"]),
        ({**ALONE, "client": "mine:CLIENT"}, ["mine:CLIENT-uni-tp1"]),
        ({**ALONE, "longest_prompt": 129}, ["executor-uni-tp1", "executor-tight-tp1"]),
        ({**ALONE, "longest_prompt": 129, "chunked_prefill": False}, ["executor-uni-tp1"]),
        ({**ALONE, "longest_prompt": None}, ["executor-uni-tp1", "executor-tight-tp1"]),
        ({**ALONE, "max_num_batched_tokens": None}, ["executor-uni-tp1", "executor-tight-tp1"]),
        ({**ALONE, "prompts": 2}, ["executor-uni-tp1", "executor-tight-tp1"]),
        ({**ALONE, "prompts": None}, ["executor-uni-tp1", "executor-tight-tp1"]),
        ({**ALONE, "prefix_caching": True}, ["executor-uni-tp1", "executor-tight-tp1"]),
        ({"executor_backend": "mp"}, ["executor-mp-tp1", "executor-tight-mp-tp1"]),
        ({"client": "extract", "executor_backend": "mp"}, ["extract-mp-tp1", "extract-tight-mp-tp1"]),
        ({"pipeline_parallel_size": 2}, ["executor-mp-pp2", "executor-tight-mp-tp1"]),
        ({"tensor_parallel_size": 8}, ["executor-mp-tp8", "executor-tight-tp8"]),
        ({"client": "llm", "tensor_parallel_size": 2, "async_scheduling": True}, ["llm-mp-tp2", "llm-async-tp2"]),
    ],
)
def test_no_more_engines_than_the_run_asks_for(changes: dict[str, Any], engines: list[str]) -> None:
    assert _engines(Request(**changes)) == engines


def test_wrapped_model_is_proved_on_the_wrapped_checkpoint() -> None:
    assert _engines(gated.RUN, KIMI) == ["executor-mp-tp2-kimi-k25", "executor-tight-tp2-kimi-k25"]
    unknown = {**KIMI, "architectures": ["NewForConditionalGeneration"]}
    assert _engines(gated.RUN, unknown) == ["executor-mp-tp2-kimi-k25", "executor-tight-tp2-kimi-k25"]
    assert _engines(gated.RUN, gated.CONFIG) == ["executor-mp-tp2", "executor-tight-tp2"]


@pytest.mark.parametrize(
    ("changes", "condition", "reason"),
    [
        ({"longest_prompt": 9, "max_num_batched_tokens": 8}, "chunks", "the longest prompt has 9 tokens"),
        ({"longest_prompt": 8, "max_num_batched_tokens": 8}, "chunks", "prompts share a forward of 8 tokens"),
        ({}, "chunks", "nothing says that the prompts fit"),
        ({"prompts": 200, "max_num_seqs": 16}, "many", "200 prompts, and 16 at a time"),
        ({}, "many", "any number of prompts, and more than one at a time"),
        ({}, "prefix", "prefix caching is on"),
    ],
)
def test_reason_says_what_of_the_run_asks_for_a_case(changes: dict[str, Any], condition: str, reason: str) -> None:
    reasons = {need.reason for need in _work_out(Request(**changes)).needs if need.case.when == condition}
    assert reasons, f"no case for {condition}"
    assert [text for text in reasons if reason not in text] == []


@pytest.mark.parametrize(
    ("changes", "config", "said"),
    [
        ({}, None, "no --model: nothing is known of its layers"),
        ({}, KIMI, "weights are quantised (compressed-tensors)"),
        ({}, {**gated.CONFIG, "architectures": ["LlamaForCausalLM"]}, "no tiny model of LlamaForCausalLM"),
        ({}, {**gated.CONFIG, "architectures": []}, "names no architecture"),
        ({}, {**gated.CONFIG, "n_routed_experts": None}, "the model is dense"),
        ({"pipeline_parallel_size": 2, "executor_backend": "mp"}, gated.CONFIG, "proved on one pipeline stage"),
        ({"executor_backend": "ray"}, gated.CONFIG, "with processes in place of Ray's workers"),
        ({"tensor_parallel_size": 8}, gated.CONFIG, "the structure of replies under mp-tp8 is recorded nowhere"),
        (
            {"engine_arguments": ("load_format", "quantization", "compilation_config")},
            gated.CONFIG,
            "no case runs with quantization, compilation_config: other kernels",
        ),
        ({"client": "mine:CLIENT"}, gated.CONFIG, "client mine:CLIENT does not show what these cases look at"),
        ({"client": "llm"}, gated.CONFIG, "client llm does not show what these cases look at: test_steps"),
    ],
)
def test_what_no_case_covers_is_said(changes: dict[str, Any], config: dict[str, Any] | None, said: str) -> None:
    warnings = _work_out(Request(**changes), config).warnings
    assert [text for text in warnings if said in text] != [], warnings


@pytest.mark.parametrize("further", [(), ("gpu_memory_utilization", "load_format")])
def test_of_a_known_model_on_two_ranks_nothing_is_left_uncovered(further: tuple[str, ...]) -> None:
    assert _work_out(replace(gated.RUN, engine_arguments=further), gated.CONFIG).warnings == ()


def test_ray_may_have_more_ranks_than_this_machine() -> None:
    request = Request(device="cuda", tensor_parallel_size=8, executor_backend="ray")
    assert _work_out(request, gated.CONFIG, kind="cuda", count=2).obstacles == ()


# The list of cases.

GROUPS = [
    *(
        Group(client=client, setting=setting)
        for client in ("executor", "llm")
        for setting in (MP_TP2, MP, UNI, TIGHT)
    ),
    *(Group(client="executor", setting=settings.named(name)) for name in ("tight-tp2", "mp-tp8")),
    Group(client="executor", setting=MP_TP2, model_kind="kimi-k25"),
]


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The ids of all cases that pytest finds in the suite for these engines."""
    work = tmp_path_factory.mktemp("work")
    toys = flow._prepare(work, flow.FACTS, flow.options(work), GROUPS)
    replace(toys, layers=(4, 0, 2, 1, 3)).write(work / "run.json")
    folder = sources.suite() / "cases"
    ours, theirs = os.pipe()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", str(folder / "pytest.toml"), f"--rootdir={folder}", str(folder)),
            *("--disable-plugin-autoload", "-p", "xdist", "-p", "pytest_timeout", "-p", "syrupy"),
            *("-p", "harness.plugin", "-p", "harness.walking", "-p", "no:cacheprovider", "--collect-only", "-q"),
            *(f"--harness-run={work / 'run.json'}", f"--harness-lifeline={ours}"),
        ],
        check=False,
        capture_output=True,
        text=True,
        pass_fds=(ours,),
    )
    for end in (ours, theirs):
        os.close(end)
    found = {line.rpartition("/")[2].partition("@")[0] for line in done.stdout.splitlines() if "::" in line}
    assert len(found) > 400, done.stdout + done.stderr
    return found


def _function(case: str) -> str:
    return case.partition("[")[0]


def test_every_case_of_the_suite_is_needed_or_it_is_said_why_not(collected: set[str]) -> None:
    listed = {case.name for case in needs.cases()}
    unneeded = {row["name"] for row in needs.table()["unneeded"] if row["why"]}
    functions = {_function(case) for case in collected}
    assert listed & unneeded == set()
    assert sorted(functions - listed - unneeded) == [], "harness/needs.toml lacks these"
    # Without a repairable client, the repair cases are not collected.
    assert sorted(name for name in listed | unneeded if name not in functions and "repairs" not in name) == []


@pytest.mark.parametrize("case", needs.cases(), ids=lambda case: case.name)
def test_needed_ids_are_those_that_a_run_gives(collected: set[str], case: needs.Case) -> None:
    found = {each for each in collected if _function(each) == case.name}
    if case.engine == "none":
        assert set(case.ids(None)) == found
        return
    runs = [group for group in GROUPS if group.setting.tight == (case.engine == "tight")]
    found = {each for each in found if any(f"[{group.name}" in each for group in runs)}
    dealt = case.name.partition("::")[2] in endings.dealt()
    wanted = {
        group: set(case.ids(group))
        for group in runs
        if not dealt or endings.turn(case.name.partition("::")[2], group, GROUPS) is not None
    }
    assert set().union(*wanted.values()) == found


def test_every_case_says_in_words_what_a_run_risks_without_it() -> None:
    poor = [case.name for case in needs.cases() if len(case.why.split()) < 4 or not re.match(r"[a-z0-9]", case.why)]
    assert poor == []


def test_settings_of_any_size_have_a_name() -> None:
    for known in (UNI, MP, MP_TP2, TIGHT, settings.CORE, settings.ASYNC, settings.PP2, settings.RAY):
        assert settings.named(known.name) is known
    eight = settings.named("tight-tp8")
    assert (eight.tensor_parallel_size, eight.executor_backend, eight.tight) == (8, "mp", True)
    for name, known in (("tight-tp2", TIGHT), ("core-tp2", settings.CORE), ("mp-tp8", MP)):
        size = int(name[-1])
        expected = replace(known, name=name, tensor_parallel_size=size, executor_backend="mp")
        assert settings.named(name) == expected


@pytest.mark.parametrize(
    ("size", "stages", "backend"), [([8], 1, "mp"), ([1], 3, "mp"), ([2], 12, "ray"), ([2], 2, "mp")]
)
def test_settings_on_request_have_the_name_that_makes_them(size: list[int], stages: int, backend: Any) -> None:
    (setting,) = settings.requested(size, stages, backend)
    assert settings.named(setting.name) == setting


@pytest.mark.parametrize("name", ["uni-tp2", "mp-tp0", "mp", "slow-tp2", "mp-tp2 ", "mp-pp1", "tight-pp2", "tight"])
def test_setting_that_there_is_not_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"no setting '{name}': uni-tp1, mp-tp1"):
        settings.named(name)


def test_every_setting_that_a_refusal_offers_there_is() -> None:
    with pytest.raises(UsageError) as caught:
        settings.named("none")
    offered = re.findall(r"[a-z-]+[pt]p\d[a-z0-9-]*", str(caught.value))
    assert {"uni-tp1", "tight-mp-tp1", "mp-tp2-pp2"} <= set(offered), offered
    for name in offered:
        assert settings.named(name).name == name
    for kind in re.findall(r"\w+", str(caught.value).partition("; and ")[2].partition(" for any size")[0]):
        if kind != "and":
            assert settings.named(f"{kind}-tp4").tensor_parallel_size == 4, kind


def test_settings_are_chosen_for_ours_or_for_the_clients_that_are_named() -> None:
    names = [group.name for group in settings.chosen((), ["mp-tp2", "tight-tp2"])]
    assert names == ["executor-mp-tp2", "llm-mp-tp2", "executor-tight-tp2", "llm-tight-tp2"]
    (kimi,) = settings.chosen(("mine:CLIENT",), ["mp-tp8"], "kimi-k25")
    assert kimi.name == "mine:CLIENT-mp-tp8-kimi-k25"


# What is read of a model.


def test_config_is_read_with_and_without_a_wrapper(tmp_path: Path) -> None:
    for config, wrapped in ((gated.CONFIG, False), (KIMI, True)):
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        found = target.read(str(tmp_path))
        assert (found.num_layers, found.hidden_size, found.heads, found.experts) == (61, 7168, 64, 384)
        assert (found.wrapped, found.dtype, found.max_positions) == (wrapped, "bfloat16", 262144)
        assert found.quantised == ("compressed-tensors" if wrapped else None)


def test_name_that_is_in_no_cache_is_told_as_a_folder_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"--model nobody/nothing: nobody/nothing/config\.json: No such file"):
        target.read("nobody/nothing")


@pytest.mark.parametrize("model", ["/nowhere", "./nowhere", "nobody/nowhere"])
def test_path_that_is_not_there_is_no_name_in_the_cache(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hugging Face's reader raises for what no repository may be called (HFValidationError, a ValueError)."""
    cache = types.ModuleType("huggingface_hub")

    def try_to_load_from_cache(name: str, _file: str) -> None:
        if not name[0].isalnum():
            raise ValueError(f"Repo id must use alphanumeric chars: {name}")

    vars(cache)["try_to_load_from_cache"] = try_to_load_from_cache
    monkeypatch.setitem(sys.modules, "huggingface_hub", cache)
    with pytest.raises(UsageError, match=rf"--model {re.escape(model)}: .*nowhere/config\.json: No such file"):
        target.read(model)
