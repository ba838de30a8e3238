"""Predictions: how a call is bound, and what is predicted against what live runs gave."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import snapshots_on_disk

from harness import cli, diff, predict, releases, uses, wheels
from harness.entries import Entry
from harness.errors import UsageError
from harness.uses import Client, Use

if TYPE_CHECKING:
    from pathlib import Path

    from harness.predict import Break
    from harness.surface import Surface

SPECULATORS = "speculators 0.3.0"
RELEASES = tuple(snapshots_on_disk.surfaces())

# speculators 0.3.0 unmodified on a tiny DeepseekV2, on a CPU: what failed, each after the one before was repaired.
# On 0.12.0 only the first was looked at before all were repaired.
LIVE: dict[str, tuple[tuple[str, str], ...]] = {
    "0.11.0": (("DeepseekV2ForCausalLM.bases", "does not support hidden state extraction"),),
    "0.12.0": (("SchedulerConfig", "is_encoder_decoder: Field required"),),
    "0.16.0": (
        ("SchedulerConfig", "is_encoder_decoder: Field required"),
        ("DeepseekV2ForCausalLM.bases", "does not support hidden state extraction"),
        ("get_kv_cache_config_from_groups", "got an unexpected keyword argument 'kv_cache_specs'"),
        ("Scheduler.__init__", "missing 1 required positional argument: 'block_size'"),
        ("DeepseekV2Model.get_input_embeddings", "object has no attribute 'get_input_embeddings'"),
        ("cache_full_blocks", "AssertionError"),
        ("MultiprocExecutor.collective_rpc", "Boolean value of Tensor with more than one value is ambiguous"),
        ("MultiprocExecutor.execute_model", "State error: sample_tokens() must be called"),
    ),
    "0.32.0": (
        ("speculators.config", "PydanticUndefinedAnnotation"),
        ("SchedulerConfig", "is_encoder_decoder: Field required"),
        ("get_kv_cache_config_from_groups", "got an unexpected keyword argument 'kv_cache_specs'"),
        ("kv_cache_layout", "has not been resolved yet"),
        ("Scheduler.__init__", "missing 1 required positional argument: 'block_size'"),
        ("block_size", "No common block size for 16"),
        ("DeepseekV2Model.get_input_embeddings", "object has no attribute 'get_input_embeddings'"),
        ("Request.__init__", "got an unexpected keyword argument 'eos_token_id'"),
        ("cache_full_blocks", "IndexError"),
        ("MultiprocExecutor.collective_rpc", "Boolean value of Tensor with more than one value is ambiguous"),
        ("MultiprocExecutor.execute_model", "State error: sample_tokens() must be called"),
    ),
}
# What is seen live and no surface can show, with the reason.
UNSEEN = {
    "speculators.config": "not vLLM's: the config of transformers 5 names torch, imported for type checkers only",
    "kv_cache_layout": "a value that nobody set; the step that sets it shows as an added method (0.29.0)",
    "block_size": "a value: what a backend takes is in a body (v1/attention/backends/cpu_attn.py, since 0.29.0)",
    "cache_full_blocks": (
        "prompts of a block and more, on a request without block_hasher: that is optional, and what fails is an "
        "assertion in a body (v1/core/block_pool.py); all that shows is that prefix caching came on with 0.12.0"
    ),
}


def predicted(client: str, release: str) -> list[Break]:
    folder = snapshots_on_disk.SNAPSHOTS
    declared = uses.declared()[client]
    return predict.breaks(
        declared,
        snapshots_on_disk.surfaces()[release],
        recorded=diff.snapshots(folder / release),
        expected=diff.snapshots(folder / declared.written_for),
    )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("client", ["executor", "llm"])
def test_nothing_of_ours_breaks_on_a_pinned_release(client: str, release: str) -> None:
    found = [each for each in predicted(client, release) if each.kind != "not recorded"]
    assert not found, f"{client} on {release}: {found}"


@pytest.mark.parametrize("release", ["0.11.0", "0.16.0", "0.32.0"])
def test_prediction_is_what_live_runs_gave_but_for_what_no_surface_shows(release: str) -> None:
    found = [(each.object, each.error) for each in predicted(SPECULATORS, release)]
    seen = [(name, words) for name, words in LIVE[release] if name not in UNSEEN]
    assert [name for name, _error in found] == [name for name, _words in seen], f"{release}: {found}"
    for (name, error), (_name, words) in zip(found, seen, strict=True):
        assert words in error, f"{release}, {name}: predicted {error!r}, seen {words!r}"


def test_the_first_failure_seen_is_the_first_predicted() -> None:
    for release, seen in LIVE.items():
        name, words = next((name, words) for name, words in seen if name not in UNSEEN)
        first = predicted(SPECULATORS, release)[0]
        assert first.object == name, f"{release}: {first}"
        assert words in first.error, f"{release}: {first}"


def test_request_breaks_on_eos_token_id_with_0_17_1_and_since() -> None:
    said = "TypeError: Request.__init__() got an unexpected keyword argument 'eos_token_id'"
    told = [release for release in RELEASES if said in [each.error for each in predicted(SPECULATORS, release)]]
    assert told == list(RELEASES[RELEASES.index("0.17.1") :]), told


def test_on_0_33_0_not_even_the_imports_work() -> None:
    found = predicted(SPECULATORS, "0.33.0")
    assert [(each.kind, each.error) for each in found[:3]] == [
        ("import", f"ImportError: cannot import name '{name}' from 'vllm.v1.core.kv_cache_utils'")
        for name in (
            *("_get_kv_cache_groups_uniform_spec", "get_kv_cache_config_from_groups"),
            "unify_hybrid_kv_cache_specs",
        )
    ], found[:3]
    unknown = [each.object for each in found if each.kind == "not recorded"]
    assert unknown == ["MultiprocExecutor.collective_rpc", "MultiprocExecutor.execute_model"], found


def entry(*parameters: str, name: str = "Request.__init__", **more: Any) -> Entry:
    return Entry(name=name, place=more.pop("place", "v1.request:Request"), parameters=parameters, **more)


@pytest.mark.parametrize(
    ("parameters", "positional", "keywords", "said"),
    [
        (("a", "b=1"), 1, ["b"], ""),
        (("a",), 0, ["a", "c"], "TypeError: Request.__init__() got an unexpected keyword argument 'c'"),
        (("a", "b"), 0, ["a"], "TypeError: Request.__init__() missing 1 required positional argument: 'b'"),
        (("a", "b", "c"), 0, [], "TypeError: Request.__init__() missing 3 required positional arguments: "),
        (("a", "*", "b"), 1, [], "TypeError: Request.__init__() missing 1 required keyword-only argument: 'b'"),
        (("a", "*", "b=1"), 2, [], "TypeError: Request.__init__() takes 2 positional arguments but 3 were given"),
        (("a",), 1, ["a"], "TypeError: Request.__init__() got multiple values for argument 'a'"),
        (("a", "/"), 0, ["a"], "got some positional-only arguments passed as keyword arguments: 'a'"),
        (("*args", "**kwargs"), 9, ["anything"], ""),
    ],
)
def test_call_is_bound_and_worded_as_python_does(
    parameters: tuple[str, ...], positional: int, keywords: list[str], said: str
) -> None:
    error = predict.call_error(entry(*parameters), positional=positional, keywords=keywords)
    assert said in error, error
    assert bool(said) == bool(error), error


def test_function_is_bound_without_self_and_a_dataclass_as_its_constructor() -> None:
    function = entry("a", name="planner")
    assert predict.call_error(function, positional=1, keywords=[]) == ""
    assert predict.call_error(function, positional=2, keywords=[]) == (
        "TypeError: planner() takes 1 positional argument but 2 were given"
    )
    fields = entry("a", "b=1", "c=set later", name="KVCacheConfig", place="v1.kv_cache_interface:X", shape="fields")
    assert predict.call_error(fields, positional=0, keywords=["a", "c"]) == (
        "TypeError: KVCacheConfig.__init__() got an unexpected keyword argument 'c'"
    )


def test_config_class_says_it_in_pydantics_words_and_may_ignore_what_it_lacks() -> None:
    fields = entry("a", "b", "c=1", "d=set later", name="XConfig", place="config.x:XConfig", shape="fields")

    def said(*keywords: str, strict: bool) -> str:
        return predict.call_error(fields, positional=0, keywords=keywords, strict=strict)

    assert said("a", "b", "c", strict=True) == ""
    assert said("a", "old", strict=False) == "ValidationError: 1 validation error for XConfig: b: Field required"
    assert said("a", "b", "d", strict=True) == (
        "ValidationError: 1 validation error for XConfig: d: Unexpected keyword argument"
    )
    assert said("old", strict=True) == (
        "ValidationError: 3 validation errors for XConfig: a: Field required; b: Field required; "
        "old: Unexpected keyword argument"
    )


MODULES = Entry(name="modules", place="", parameters=("vllm.v1", "vllm.v1.request"), shape="is")


def breaks(*found: Entry, **use: Any) -> list[str]:
    client = Client(name="mine", written_for="1", uses=(Use(**use),))
    surface: Surface = {each.name: each for each in (*found, MODULES)}
    return [each.error for each in predict.breaks(client, surface, recorded={}, expected={})]


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("vllm.v1.request", ""),
        ("vllm.v1", "ImportError: cannot import name 'Request' from 'vllm.v1'"),
        ("vllm.worker.request", "ModuleNotFoundError: No module named 'vllm.worker'"),
        ("vllm.v1.other", "ModuleNotFoundError: No module named 'vllm.v1.other'"),
    ],
)
def test_import_that_fails_is_worded_as_python_does(module: str, said: str) -> None:
    assert breaks(entry("a"), object="Request.__init__", imported_from=module) == ([said] if said else [])


def test_import_from_a_module_that_passes_it_on_works() -> None:
    here = entry("a", also=("vllm.v1",))
    assert breaks(here, object="Request.__init__", imported_from="vllm.v1") == []


def test_attribute_that_is_gone_and_class_that_is_gone_are_told_apart() -> None:
    assert breaks(entry("a"), object="Request.gone") == ["AttributeError: 'Request' object has no attribute 'gone'"]
    assert breaks(object="Request.__init__") == ["Request is not in this release"]
    assert breaks(object="get_kv_cache_configs") == ["get_kv_cache_configs is not in this release"]
    fields = entry("a", name="SchedulerOutput", shape="fields")
    assert breaks(fields, object="SchedulerOutput", reads=("a", "b")) == [
        "AttributeError: 'SchedulerOutput' object has no attribute 'b'"
    ]


def test_condition_on_a_capability_leaves_a_use_or_a_keyword_out() -> None:
    request = entry("a", "eos_token_id")
    assert breaks(request, object="Request.__init__", keywords=("a",), when=("not request_takes_eos_token_id",)) == []
    more = {"request_takes_eos_token_id": ("eos_token_id",)}
    assert breaks(request, object="Request.__init__", keywords=("a",), keywords_if=more) == []
    assert breaks(entry("a"), object="Request.__init__", keywords=("a",), keywords_if=more) == []


def test_reply_that_was_recorded_differently_breaks_and_one_that_was_not_is_said_to_be_unknown() -> None:
    use = Use(object="f", recorded="test_reply/x", error="IndexError")
    client = Client(name="mine", written_for="1", uses=(use,))

    def found(recorded: dict[str, Any]) -> list[tuple[str, str]]:
        broken = predict.breaks(client, {}, recorded=recorded, expected={"test_reply/x": [["T"]]})
        return [(each.kind, each.error) for each in broken]

    assert found({"test_reply/x": [["T"]]}) == []
    ((kind, error),) = found({"test_reply/x": ["T"]})
    assert kind == "recorded", kind
    assert error == "IndexError (one list less: expected a list of one, got its item bare: ['T'])"
    ((kind, error),) = found({})
    assert (kind, "test_reply/x" in error) == ("not recorded", True), (kind, error)


def test_neighbouring_releases_are_joined() -> None:
    versions = ["1", "2", "3", "4"]
    assert predict.ranges(versions, iter(["1", "3", "4"])) == "1, 3..4"
    assert predict.ranges(versions, versions) == "1..4"
    assert predict.ranges(versions, []) == ""


# A client's declaration.


def declare(folder: Path, text: str) -> str:
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return str(folder / "mine.toml")


MINE = """
[mine]
written_for = "0.11.0"
[[mine.uses]]
object = "Request.__init__"
keywords = ["request_id", "prompt_token_ids", "sampling_params", "pooling_params", "eos_token_id"]
at = "mine.py"
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mine", r"cannot be read as TOML: .*\. Correct it \(docs/how-to/predict-what-breaks\.md shows the form\)"),
        ("[mine]\nuses = []", "written_for"),
        ("[mine]\nwritten_for = '0.11.9'\nuses = []", "vLLM 0.11.9 is not pinned: did you mean 0.11.0"),
        ("[mine]\nwritten_for = '>=0.11'\nuses = []", "vLLM >=0.11 is not pinned"),
        ("[mine]\nwritten_for = 0.11\nuses = []", "vLLM 0.11 is not pinned"),
        (
            "[mine]\nwritten_for = '0.11.0'\nuses = [{ object = 'Request.nothing' }]",
            "Request.nothing, which nobody reads",
        ),
        ("[mine]\nwritten_for = '0.11.0'\nuses = [{ object = 'Request.__init__', wehn = ['x'] }]", "wehn"),
        ("[mine]\nwritten_for = '0.11.0'\nuses = [{ object = 'Request.__init__', when = ['x'] }]", "no capability"),
    ],
)
def test_declaration_that_is_wrong_says_how(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        uses.find(declare(tmp_path, text))


def test_unknown_client_names_those_that_are_declared() -> None:
    with pytest.raises(UsageError, match=r"executor, llm, speculators 0\.3\.0"):
        uses.find("mine")


def test_file_that_is_not_there_is_no_bad_toml(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UsageError, match=r"there is no file .*none\.toml: give the path"):
        uses.find(str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match=r"folder\.toml cannot be read: Is a directory\. Give a file"):
        uses.find(str(tmp_path / "folder.toml"))


def test_every_recorded_name_that_a_client_declares_was_recorded_on_the_release_it_is_written_for() -> None:
    for client in uses.declared().values():
        held = diff.snapshots(snapshots_on_disk.SNAPSHOTS / client.written_for)
        assert client.recorded <= held.keys(), f"{client.name}: {sorted(client.recorded - held.keys())}"


# The command.


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Surfaces come from the snapshots."""
    monkeypatch.setattr(wheels, "surface_of", lambda build: snapshots_on_disk.surfaces()[build.release])


@pytest.mark.usefixtures("cached")
def test_a_clients_own_declaration_is_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", declare(tmp_path, MINE), "--releases", ">=0.15,<0.19"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "mine: breaks on 2 of 4 releases",
        "",
        "0.17.1..0.18.1   Request.__init__   [call]",
        "  TypeError: Request.__init__() got an unexpected keyword argument 'eos_token_id'",
        "  at mine.py",
        "",
        "nothing breaks on: 0.15.1..0.16.0",
    ]
    assert cli.main(["predict", declare(tmp_path, MINE), "--releases", "==0.16.0"]) == 0


@pytest.mark.usefixtures("cached")
def test_prediction_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", SPECULATORS, "--releases", "==0.11.1", "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["client"], row["release"]) == (SPECULATORS, "0.11.1"), row
    assert [each["kind"] for each in row["breaks"]] == ["base", "call", "attribute", "recorded", "recorded"], row
    assert row["breaks"][1] == {
        "kind": "call",
        "object": "Scheduler.__init__",
        "error": "TypeError: Scheduler.__init__() missing 1 required positional argument: 'block_size'",
        "at": "vllm_hidden_states_generator.py __init__",
    }, row["breaks"][1]


@pytest.mark.usefixtures("cached")
def test_what_is_not_recorded_is_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", "llm", "--releases", "==0.33.0"]) == 0
    said = capsys.readouterr().out
    assert "breaks on 0 of 1" in said, said
    assert "[not recorded]" in said, said


@pytest.mark.parametrize(("spec", "said"), [("0.16", "'>=0.16,<0.30'"), (">=2", "no pinned release is >=2")])
def test_releases_that_cannot_be_meant_exit_2(spec: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", "llm", "--releases", spec]) == 2
    assert said in capsys.readouterr().err


def test_specifiers_choose_pinned_releases() -> None:
    assert [release.version for release in releases.matching(">=0.11,<0.12")] == ["0.11.0", "0.11.1", "0.11.2"]
    assert releases.matching("") == releases.load()


def test_the_documented_declaration_is_one(tmp_path: Path) -> None:
    page = (snapshots_on_disk.SNAPSHOTS.parent / "docs/how-to/predict-what-breaks.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    (client,) = uses.find(declare(tmp_path, text))
    assert client.name == next(iter(tomllib.loads(text))), client
