from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from harness import diff
from harness.entries import Entry

if TYPE_CHECKING:
    from pathlib import Path

    from harness.surface import Surface


def entry(name: str, *parameters: str, place: str = "v1.request:Request", returns: str | None = None) -> Entry:
    return Entry(name=name, place=place, parameters=parameters, returns=returns, source="def f(): ...")


def surface(*entries: Entry) -> Surface:
    return {each.name: each for each in entries}


def kinds(before: Surface, after: Surface) -> list[tuple[str, str]]:
    return [(change.kind, change.detail) for change in diff.compare(before, after)]


def test_equal_surfaces_have_no_changes() -> None:
    same = surface(entry("Request.__init__", "request_id", "priority=0"))
    assert diff.compare(same, same) == []


def test_a_removed_parameter_breaks_callers() -> None:
    changes = kinds(surface(entry("f", "a", "eos_token_id")), surface(entry("f", "a")))
    assert changes == [("parameter removed", "eos_token_id")], changes


def test_a_new_parameter_without_default_is_required_and_one_with_default_is_added() -> None:
    changes = kinds(surface(entry("f", "a")), surface(entry("f", "a", "block_size", "hash_block_size=None")))
    assert changes == [("parameter required", "block_size"), ("parameter added", "hash_block_size=None")], changes


def test_a_default_that_flips_is_told_with_both_values() -> None:
    changes = kinds(surface(entry("f", "prefix_caching=None")), surface(entry("f", "prefix_caching=True")))
    assert changes == [("default changed", "prefix_caching: None -> True")], changes


def test_a_default_that_goes_makes_the_parameter_required() -> None:
    changes = kinds(surface(entry("f", "encoder=False")), surface(entry("f", "encoder")))
    assert changes == [("parameter required", "encoder had the default False")], changes


def test_an_object_that_moves_is_neither_removed_nor_added() -> None:
    changes = kinds(
        surface(entry("planner", "specs", place="v1.core.kv_cache_utils:planner")),
        surface(entry("planner", "specs", place="v1.core.kv_cache_planning:planner")),
    )
    moved = "vllm.v1.core.kv_cache_utils.planner -> vllm.v1.core.kv_cache_planning.planner"
    assert changes == [("moved", moved)], changes


def test_changes_that_break_come_first_and_those_with_users_before_those_without() -> None:
    before = surface(entry("Unused.f"), entry("Request.__init__", "a"), entry("Other", "a"))
    after = surface(entry("Request.__init__", "a", "b"), entry("Other", "a", "b"), entry("New.f"))
    found = [(change.kind, change.name) for change in diff.compare(before, after)]
    assert found == [
        ("removed", "Unused.f"),
        ("parameter required", "Request.__init__"),
        ("parameter required", "Other"),
        ("added", "New.f"),
    ], found


def test_users_are_named() -> None:
    before, after = surface(entry("Request.__init__", "a")), surface(entry("Request.__init__", "a", "b"))
    (change,) = diff.compare(before, after)
    assert set(change.used_by) == {"executor", "speculators 0.3.0"}, change


def test_a_reply_that_turns_bare_shows_though_no_signature_does(tmp_path: Path) -> None:
    for release, reply in (("old", [["tensor float32 [5, 64]"]]), ("new", ["tensor float32 [5, 64]"])):
        (tmp_path / release).mkdir()
        snapshots = {"test_first_rank[executor-mp-tp1]": reply, "test_first_rank[executor-mp-tp2]": reply}
        (tmp_path / release / "test_reply.json").write_text(json.dumps(snapshots), encoding="utf-8")
    changes = diff.recorded(diff.snapshots(tmp_path / "old"), diff.snapshots(tmp_path / "new"))
    assert [change.kind for change in changes] == ["recorded live", "recorded live"], changes
    assert "one list less" in changes[0].detail, changes[0].detail
    ((first, times),) = diff.merged(changes)
    assert (first.name, times) == ("test_first_rank[executor-mp-tp1]", 2), (first, times)
    assert first.used_by == ("speculators 0.3.0",), first


def test_who_is_hit_is_told_of_all_changes_that_were_merged() -> None:
    one = diff.Change(kind="recorded live", name="test_steps[a]", detail="gone")
    other = diff.Change(kind="recorded live", name="test_steps[b]", detail="gone", used_by=("mine",))
    ((merged, times),) = diff.merged([one, other])
    assert (merged.name, merged.used_by, times) == ("test_steps[a]", ("mine",), 2), merged


def test_releases_without_snapshots_have_nothing_recorded(tmp_path: Path) -> None:
    assert diff.snapshots(tmp_path / "a") == {}
    assert diff.recorded({}, {"test_reply/test_first_rank": []}) == []


def test_what_is_defined_elsewhere_but_imported_as_before_has_not_moved() -> None:
    before = entry("VllmConfig", "a", place="config:VllmConfig")
    after = entry("VllmConfig", "a", place="config.vllm:VllmConfig")
    assert kinds(surface(before), surface(replace(after, also=("vllm.config",)))) == []
    (change,) = kinds(surface(before), surface(after))
    assert change == ("moved", "vllm.config.VllmConfig -> vllm.config.vllm.VllmConfig"), change


def test_words_that_come_and_go_are_one_change() -> None:
    def bases(*words: str) -> Surface:
        return surface(Entry(name="M.bases", place="m:M", parameters=words, shape="is"))

    assert kinds(bases("A", "B"), bases("A", "C")) == [("changed", "B -> C")]
    assert kinds(bases("A", "B"), bases("B", "C", "D")) == [("changed", "gone: A; new: C, D")]
    assert kinds(bases("A", "B"), bases("B", "A")) == []


def test_a_parameter_that_can_no_longer_be_given_by_position_is_told() -> None:
    assert kinds(surface(entry("f", "a", "b=1")), surface(entry("f", "a", "*", "b=1"))) == [("keyword only", "b")]
    assert kinds(surface(entry("f", "*", "b=1")), surface(entry("f", "*", "b=1", "c=2"))) == [
        ("parameter added", "c=2")
    ]


def test_a_return_annotation_is_told_but_not_that_of_a_constructor() -> None:
    changes = kinds(surface(entry("f", returns="list[int]")), surface(entry("f")))
    assert changes == [("returns changed", "list[int] -> no word")], changes
    assert kinds(surface(entry("A.__init__", returns="None")), surface(entry("A.__init__"))) == []


def test_text_and_markdown_hold_every_change() -> None:
    changes = diff.compare(surface(entry("Request.__init__", "a")), surface(entry("Request.__init__", "a", "b|c")))
    text = "\n".join(diff.lines("1", "2", changes))
    assert "vLLM 1 -> 2: 1 changes" in text, text
    assert "Request.__init__: b|c   [executor, speculators 0.3.0]" in text, text
    assert "| parameter required | `Request.__init__` | b\\|c | executor, speculators 0.3.0 |" in diff.markdown(
        "1", "2", changes
    )
