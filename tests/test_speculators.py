from __future__ import annotations

import importlib.metadata
import json
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from snapshots_on_disk import SNAPSHOTS, capabilities_of, recorded

from harness import capabilities, releases
from harness import surface as surfaces
from harness.clients import speculators_0_3_0 as client
from harness.clients import speculators_patches as patches
from harness.clients.speculators_repairs import IMPORT, REPAIRS
from harness.entries import Entry
from harness.errors import EnvironmentUnusableError
from harness.settings import CORE, MP, MP_TP2, UNI, Setting
from harness.walk import meant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROBED_IN_FILES = {"import", "block-size"}


@pytest.fixture
def recorded_releases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, surfaces.Surface]:
    """The surfaces of the releases, as far as the signature and capability cases recorded them."""
    found: dict[str, surfaces.Surface] = {}
    facts = {}
    for version, row in recorded().items():
        text = (SNAPSHOTS / version / "test_signatures.json").read_text(encoding="utf-8")
        surface = {
            name: Entry(
                name=name, place="", parameters=tuple(entry.get("takes", entry.get("fields", entry.get("is"))))
            )
            for area in json.loads(text).values()
            for name, entry in area.items()
        }
        found[version] = surface
        facts[id(surface)] = capabilities_of(row)
    monkeypatch.setattr(capabilities, "of", lambda surface: facts[id(surface)])
    monkeypatch.setattr(surfaces, "installed_root", lambda: tmp_path)
    return found


def needing(name: str, recorded_releases: dict[str, surfaces.Surface]) -> set[str]:
    (repair,) = [repair for repair in REPAIRS if repair.name == name]
    return {version for version, surface in recorded_releases.items() if repair.needed(surface)}


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("scheduler-config", "0.12.0", "0.32.0"),
        ("eagle3-refusal", "0.11.0", "0.17.1"),
        ("kv-cache-specs", "0.12.0", "0.32.0"),
        ("kv-cache-layout", "0.29.0", "0.32.0"),
        ("scheduler-block-size", "0.11.1", "0.32.0"),
        ("input-embeddings", "0.11.1", "0.32.0"),
        ("eos-token-id", "0.17.1", "0.32.0"),
        ("prefix-caching", "0.12.0", "0.32.0"),
        ("bare-reply", "0.11.1", "0.32.0"),
        ("second-phase", "0.11.1", "0.32.0"),
    ],
)
def test_releases_that_need_a_repair(
    recorded_releases: dict[str, surfaces.Surface], name: str, first: str, last: str
) -> None:
    pinned = [release.version for release in releases.with_build("cpu")]
    assert needing(name, recorded_releases) == set(pinned[pinned.index(first) : pinned.index(last) + 1])


def test_every_repair_is_needed_by_a_pinned_release(recorded_releases: dict[str, surfaces.Surface]) -> None:
    names = {repair.name for repair in REPAIRS} - PROBED_IN_FILES
    assert [name for name in names if not needing(name, recorded_releases)] == []


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("class PreTrainedConfig:\n    dtype: str | torch.dtype | None = None\n", True),
        ("class PreTrainedConfig:\n    dtype: Union[str, 'torch.dtype'] | None = None\n", True),
        ("class PretrainedConfig:\n    model_type: str = ''\n", False),
    ],
)
def test_config_class_that_names_torch_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, needed: bool
) -> None:
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "configuration_utils.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert IMPORT.needed({}) is needed


@pytest.mark.parametrize(("text", "needed"), [("return [MultipleOf(32)]", True), ("return [16]", False), ("", False)])
def test_block_size_that_the_cpu_backend_takes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, needed: bool
) -> None:
    backend = tmp_path / "v1" / "attention" / "backends" / "cpu_attn.py"
    backend.parent.mkdir(parents=True)
    if text:
        backend.write_text(text, encoding="utf-8")
    monkeypatch.setattr(surfaces, "installed_root", lambda: tmp_path)
    (repair,) = [repair for repair in REPAIRS if repair.name == "block-size"]
    assert repair.needed({}) is needed


# Texts as vLLM 0.16.0 and 0.32.0 gave them.
WORKER = "ClientError: RuntimeError: Worker failed with error '{}', please check the stack trace above"
SEEN = {
    "import": "ClientError: PydanticUndefinedAnnotation: name 'torch' is not defined (in complete_model_class, ...)",
    "scheduler-config": "ClientError: ValidationError: 1 validation error for SchedulerConfig\nis_encoder_decoder\n"
    "  Field required [type=missing]",
    "eagle3-refusal": WORKER.format("Model DeepseekV2ForCausalLM does not support hidden state extraction"),
    "kv-cache-specs": "ClientError: TypeError: get_kv_cache_config_from_groups() got an unexpected keyword argument "
    "'kv_cache_specs' (in __init__, vllm_hidden_states_generator.py)",
    "kv-cache-layout": "ClientError: ValueError: KV cache layout has not been resolved yet; it is resolved once by "
    "the engine core (resolve_kv_cache_layout) (in get_resolved_kv_cache_layout, cache.py)",
    "scheduler-block-size": "ClientError: TypeError: Scheduler.__init__() missing 1 required positional argument: "
    "'block_size' (in __init__, vllm_hidden_states_generator.py)",
    "block-size": WORKER.format("No common block size for 16 (CPU_ATTN: [MultipleOf(32)])."),
    "input-embeddings": WORKER.format("'DeepseekV2Model' object has no attribute 'get_input_embeddings'"),
    "eos-token-id": "ClientError: TypeError: Request.__init__() got an unexpected keyword argument 'eos_token_id'",
    "prefix-caching": "ClientError: AssertionError:  (in cache_full_blocks, block_pool.py)",
    "bare-reply": "ClientError: RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
    "truth-test": "IncompleteSampleError: prompt 0 (5 tokens): 254 tensors of [5] in place of 5 of [5, hidden_size]",
    "second-phase": WORKER.format("State error: sample_tokens() must be called after execute_model() returns None."),
}


@pytest.mark.parametrize("repair", REPAIRS, ids=lambda repair: repair.name)
def test_symptom_is_that_of_its_failure_alone(repair: Any) -> None:
    found = meant(REPAIRS, SEEN[repair.name])
    assert found is not None
    assert found.name == repair.name


def test_names_are_distinct_and_detours_belong_to_a_repair() -> None:
    names = [repair.name for repair in REPAIRS]
    assert len(set(names)) == len(names)
    assert {repair.instead_of for repair in REPAIRS} - {""} <= set(names)


# The patches, on a module that looks like the generator's.


class Executor:
    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config
        self.called: list[Any] = []

    def collective_rpc(self, method: Any, *_arguments: Any, **_named: Any) -> Any:
        self.called.append(method)
        return method

    def execute_model(self, scheduled: Any) -> Any:
        self.called.append("execute_model")
        return scheduled

    def sample_tokens(self, grammar: Any) -> Any:
        self.called.append("sample_tokens")
        return ("sampled", grammar)


@pytest.fixture
def generator() -> Any:
    module: Any = ModuleType("generator")
    module.MultiprocExecutor = Executor
    module.Config = dict
    return module


def executor(generator: Any, *chosen: Callable[[Any], None]) -> Any:
    with patches.applied(chosen, generator):
        return generator.MultiprocExecutor(vllm_config="config")


@pytest.mark.parametrize(
    ("patch", "made"),
    [
        (patches.give("Config", b=2), {"a": 1, "b": 2}),
        (patches.leave_out("Config", "a"), {}),
        (patches.insist("Config", a=3), {"a": 3}),
    ],
    ids=["give", "leave-out", "insist"],
)
def test_arguments_are_changed_while_applied(generator: Any, patch: Callable[[Any], None], made: Any) -> None:
    with patches.applied([patch], generator):
        assert generator.Config(a=1) == made
    assert generator.Config(a=1) == {"a": 1}


def test_patches_are_taken_back_also_after_an_error(generator: Any) -> None:
    with pytest.raises(ZeroDivisionError), patches.applied([patches.pay_second_phase], generator):
        raise ZeroDivisionError
    assert generator.MultiprocExecutor is Executor


def test_second_phase_is_paid_where_it_is_owed(generator: Any) -> None:
    mended = executor(generator, patches.pay_second_phase)
    assert mended.execute_model(None) == ("sampled", None)
    assert mended.execute_model("output") == "output"
    assert mended.called == ["execute_model", "sample_tokens", "execute_model"]


def test_captured_reply_alone_is_wrapped(generator: Any) -> None:
    mended = executor(generator, patches.wrap_captured(patches.in_a_list))
    assert mended.collective_rpc("_get_captured_states") == ["_get_captured_states"]
    assert mended.collective_rpc("execute_model") == "execute_model"


def test_workers_are_told_as_soon_as_they_are_up_and_patches_stack(generator: Any) -> None:
    mended = executor(
        generator,
        patches.in_workers(patches.accept_any_model),
        patches.pay_second_phase,
        patches.in_workers(patches.name_embedding_as_before),
    )
    assert mended.called == [patches.accept_any_model, patches.name_embedding_as_before]
    assert mended.execute_model(None) == ("sampled", None)


# The client.


@pytest.mark.parametrize("setting", [MP, MP_TP2, UNI, CORE], ids=lambda setting: setting.name)
def test_only_the_multiprocess_executor_in_process(setting: Setting) -> None:
    refused = client.CLIENT.refuses(setting.spec(model="", layers=(0,))) is not None
    assert refused is (setting in {UNI, CORE})


@pytest.mark.parametrize("found", ["0.4.0", None])
def test_another_version_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch, found: str | None) -> None:
    def version(name: str) -> str:
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(EnvironmentUnusableError, match=r"environment RELEASE --client speculators-0\.3\.0") as caught:
        client.CLIENT.opens_with("cpu")
    assert (found or "not installed") in str(caught.value)


def test_unmodified_is_unmodified_but_for_the_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.3.0")
    assert client.CLIENT.opens_with("cpu") == ("memory-on-cpu", "dtype")
    assert client.CLIENT.opens_with("cuda") == ("dtype",)


@pytest.mark.usefixtures("recorded_releases")
def test_repaired_opens_with_what_the_release_needs(
    monkeypatch: pytest.MonkeyPatch, recorded_releases: dict[str, surfaces.Surface]
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.3.0")
    monkeypatch.setattr(surfaces, "read", lambda _root: recorded_releases["0.11.0"])
    assert client.REPAIRED.opens_with("cpu") == ("memory-on-cpu", "dtype", "eagle3-refusal")
