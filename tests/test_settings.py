from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from harness import settings
from harness.run import Run
from harness.settings import ASYNC, CORE, MP, MP_TP2, PP2, RAY, TIGHT, UNI, UNREPAIRED, Group

if TYPE_CHECKING:
    from harness.clients.contract import ExecutorBackend
    from harness.settings import Setting

CLIENT = "mine:CLIENT"


def _names(groups: list[Group]) -> list[str]:
    return [group.name for group in groups]


def test_our_clients_share_the_settings_between_them() -> None:
    groups = settings.plan([], [])
    assert {group.setting for group in groups} == {UNI, MP, MP_TP2, CORE, TIGHT, ASYNC}
    assert {group.client for group in groups} == {"executor", "llm"}
    assert len(set(_names(groups))) == len(groups), groups
    assert UNREPAIRED in groups


def test_another_client_gets_every_setting() -> None:
    assert _names(settings.plan([CLIENT], [])) == [
        f"mine:CLIENT-{setting.name}" for setting in (MP_TP2, ASYNC, MP, CORE, TIGHT, UNI)
    ]


def test_one_of_our_clients_gets_only_what_is_recorded_for_it() -> None:
    assert _names(settings.plan(["llm"], [])) == [
        "llm-async-tp2",
        "llm-mp-tp2",
        "llm-core-tp1",
        "llm-uni-tp1",
    ]


def test_another_client_is_held_to_what_ours_recorded_under_the_same_setting() -> None:
    for group in settings.plan([CLIENT], []):
        ours = settings.recorded(group)
        assert ours is not None, group
        assert ours.setting == group.setting, (group, ours)
    for group in settings.plan([], []):
        assert settings.recorded(group) == replace(group, model_kind="deepseek-v2")
    (eight, *_rest) = settings.plan([], [8])
    assert settings.recorded(eight) is None, eight


def test_one_of_the_default_engines_is_on_the_multimodal_wrapper() -> None:
    kimi = [group for group in settings.plan([], []) if group.model_kind == "kimi-k25"]
    assert _names(kimi) == ["executor-mp-tp2-kimi-k25"]
    assert kimi[0].needs == ("kimi-k25",)


@pytest.mark.parametrize("kind", settings.MODEL_KINDS)
def test_a_model_kind_that_was_asked_for_is_every_engines_and_each_boots_once(kind: settings.ModelKind) -> None:
    groups = settings.plan([], [], kind)
    assert {group.model_kind for group in groups} == {kind}, groups
    assert len(set(groups)) == len(groups), groups
    assert {group.setting for group in groups} == {group.setting for group in settings.plan([], [])}


def test_two_ranks_come_first() -> None:
    for groups in (settings.plan([], []), settings.plan([CLIENT], [])):
        sizes = [group.setting.tensor_parallel_size for group in groups]
        assert sizes == sorted(sizes, reverse=True), groups


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([2], ["mine:CLIENT-mp-tp2", "mine:CLIENT-async-tp2"]),
        ([1], [f"mine:CLIENT-{name}" for name in ("mp-tp1", "core-tp1", "tight-tp1", "uni-tp1")]),
        ([8], ["mine:CLIENT-mp-tp8"]),
        ([2, 4, 4], ["mine:CLIENT-mp-tp4", "mine:CLIENT-mp-tp2", "mine:CLIENT-async-tp2"]),
    ],
)
def test_only_the_sizes_that_were_asked_for(sizes: list[int], names: list[str]) -> None:
    assert _names(settings.plan([CLIENT], sizes)) == names


def test_a_size_of_its_own_is_multiprocess_for_each_client() -> None:
    groups = settings.plan([], [4])
    assert sorted(_names(groups)) == ["executor-mp-tp4", "llm-mp-tp4"]
    assert {group.setting.executor_backend for group in groups} == {"mp"}
    assert {group.setting.tensor_parallel_size for group in groups} == {4}


@pytest.mark.parametrize(
    ("sizes", "stages", "backend", "names"),
    [
        ([], 2, "mp", ["mp-pp2"]),
        ([], 1, "ray", ["ray-tp2"]),
        ([1], 1, "ray", ["ray-tp1"]),
        ([1, 2, 2], 2, "mp", ["mp-tp2-pp2", "mp-pp2"]),
        ([4], 2, "ray", ["ray-tp4-pp2"]),
    ],
)
def test_what_is_opened_on_request_is_named_after_what_was_asked(
    sizes: list[int], stages: int, backend: ExecutorBackend, names: list[str]
) -> None:
    found = settings.requested(sizes, stages, backend)
    assert [setting.name for setting in found] == names
    for setting in found:
        assert (setting.executor_backend, setting.pipeline_parallel_size) == (backend, stages), setting
        assert setting.ranks == setting.tensor_parallel_size * stages == _spec_ranks(setting), setting


def _spec_ranks(setting: Setting) -> int:
    return setting.spec(model="", layers=(0,)).ranks


def test_request_opens_nothing_else_and_nothing_of_it_is_opened_unasked() -> None:
    assert settings.requested([], 2, "mp") == [PP2]
    assert settings.requested([], 1, "ray") == [RAY]
    assert _names(settings.plan([], [], on_request=[PP2])) == ["executor-mp-pp2", "llm-mp-pp2"]
    (mine,) = settings.plan([CLIENT], [], "kimi-k25", [RAY])
    assert (mine.name, mine.needs) == ("mine:CLIENT-ray-tp2-kimi-k25", ("kimi-k25", "ray"))
    assert {group.setting for group in settings.plan([], [])}.isdisjoint({PP2, RAY})


def test_what_is_opened_on_request_has_snapshots_of_its_own() -> None:
    for group in settings.plan([], [], on_request=[PP2, RAY]):
        assert settings.recorded(group) == group
        assert settings.on_request(group), group
    (mine,) = settings.plan([CLIENT], [], on_request=[PP2])
    ours = settings.recorded(mine)
    assert ours is not None
    assert ours.setting == PP2
    assert not any(settings.on_request(group) for group in settings.plan([], []))
    (other,) = settings.plan([CLIENT], [], on_request=settings.requested([], 4, "mp"))
    assert settings.recorded(other) is None, other


def _run(**changes: object) -> Run:
    facts = {
        "release": "0.16.0",
        "device": "cpu",
        "dtype": "float32",
        "groups": tuple(settings.plan([], [])),
        "layers": (4, 0, 2),
        "checkpoints": {"deepseek-v2": "/deepseek", "kimi-k25": "/kimi"},
        "work": "/work",
        "snapshots": "/snapshots/0.16.0",
        "variables": {"OMP_NUM_THREADS": "1"},
        "repair": {},
        "block_size": 32,
    }
    return Run(**{**facts, **changes})  # type: ignore[arg-type]


def test_run_file_round_trip(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("run") / "run.json"
    run = _run(repair={"extension": "a.B", "extra_arguments": {"compilation_config": {"custom_ops": ["none"]}}})
    run.write(path)
    assert Run.read(path) == run


def test_spec_of_a_group_is_its_setting() -> None:
    run = _run()
    for group in run.groups:
        spec = run.spec(group)
        assert spec.layers == ((4, 0) if group.setting.tight else (4, 0, 2)), group
        kimi = group.model_kind == "kimi-k25"
        assert spec.model == ("/kimi" if kimi else "/deepseek"), group
        assert (spec.trust_remote_code, spec.tokenizer) == (kimi, kimi), group
        assert (spec.tensor_parallel_size, spec.executor_backend, spec.engine_core_process) == (
            group.setting.tensor_parallel_size,
            group.setting.executor_backend,
            group.setting.engine_core_process,
        )


def test_engines_share_a_gpu_and_have_a_repairs_arguments_beside_it() -> None:
    run = _run(device="cuda", dtype="bfloat16", repair={"extra_arguments": {"seed": 1}})
    for group in run.groups:
        spec = run.spec(group)
        assert spec.dtype == "bfloat16"
        assert 0 < spec.extra_arguments["gpu_memory_utilization"] * len(run.groups) < 0.5, group
        assert spec.extra_arguments["kv_cache_memory_bytes"] == 2**28, group
        assert spec.extra_arguments.get("seed") == (None if group == UNREPAIRED else 1), group
    assert run.repair == {"extra_arguments": {"seed": 1}}
    assert all(not _run().spec(group).extra_arguments for group in run.groups)


def test_repair_is_everywhere_but_where_the_fault_must_show() -> None:
    run = _run(repair={"extension": "a.B"})
    with_repair = {group for group in run.groups if run.spec(group).extension == "a.B"}
    assert set(run.groups) - with_repair == {UNREPAIRED}
