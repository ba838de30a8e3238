from __future__ import annotations

import ast

import pytest
from conftest import TESTS

from harness import endings, settings
from harness.settings import ASYNC, CORE, MP, MP_TP2, PP2, UNI, Group, Setting


def _marked() -> set[str]:
    """The cases that carry the marker."""
    return {
        node.name
        for path in (TESTS.parent / "cases").glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and "ends_engine" in "".join(map(ast.unparse, node.decorator_list))
    }


def _turns(group: Group) -> list[str]:
    turns = {case: endings.turn(case, group) for case in _marked()}
    return sorted((case for case in turns if turns[case] is not None), key=lambda case: turns[case] or 0)


def test_what_is_dealt_is_a_case_that_ends_engines() -> None:
    assert set(endings.dealt()) <= _marked()


@pytest.mark.parametrize("client", [None, "extract", "mine:CLIENT"])
@pytest.mark.parametrize("case", sorted(endings.dealt()))
def test_each_is_tried_with_one_worker_and_with_several(case: str, client: str | None) -> None:
    groups = settings.plan([client] if client else [], [])
    tried = [group for group in groups if endings.turn(case, group) is not None]
    if client and not tried:
        pytest.fail(f"{case} runs on no engine of {client}")
    if not client:
        assert {group.setting.tensor_parallel_size > 1 for group in tried} == {True, False}, tried


def test_what_a_raise_leaves_behind_answers_no_other_drill() -> None:
    for client in ("executor", "llm"):
        for setting in (MP_TP2, ASYNC):
            turns = _turns(Group(client=client, setting=setting))
            if "test_call_after_a_raise" in turns:
                assert not {"test_hanging_worker_is_an_error", "test_worker_killed_in_a_call"} & set(turns), turns


def test_closing_is_last_on_every_engine() -> None:
    for group in [*settings.plan([], []), *settings.plan([], [8]), *settings.plan(["mine:CLIENT"], [])]:
        assert _turns(group)[-1] == "test_closing_leaves_nothing", group


def test_a_dead_worker_comes_after_everything_that_needs_one() -> None:
    for group in settings.plan([], []):
        killed = [place for place, case in enumerate(_turns(group)) if "killed" in case]
        assert killed in ([], [len(_turns(group)) - 2]), _turns(group)


@pytest.mark.parametrize(
    ("group", "like"),
    [
        (Group(client="mine:CLIENT", setting=MP_TP2), Group(client="llm", setting=MP_TP2)),
        (Group(client="mine:CLIENT", setting=CORE), Group(client="llm", setting=CORE)),
        (Group(client="llm", setting=MP), Group(client="executor", setting=MP)),
        (Group(client="executor", setting=PP2), Group(client="executor", setting=MP_TP2)),
        (Group(client="llm", setting=PP2), Group(client="llm", setting=MP_TP2)),
        (
            Group(client="llm", setting=Setting(name="mp-tp8", executor_backend="mp", tensor_parallel_size=8)),
            Group(client="llm", setting=MP_TP2),
        ),
    ],
    ids=lambda group: group.name,
)
def test_an_engine_without_an_entry_ends_like_one_of_its_kind(group: Group, like: Group) -> None:
    assert _turns(group) == _turns(like)
    assert len(_turns(group)) > 1


def test_an_engine_of_every_run_is_closed_while_its_workers_are_well() -> None:
    groups = settings.plan([], [])
    turns = {group.name: [case for case in _marked() if endings.turn(case, group, groups)] for group in groups}
    well = [group for group in groups if turns[group.name] == ["test_closing_leaves_nothing"]]
    assert [group.name for group in well if group.setting.ranks > 1] == ["executor-mp-tp2-kimi-k25"], turns
    # On its own, it is ended in every way that its twin would be.
    alone = settings.plan([], [], "kimi-k25")
    assert len([case for case in _marked() if endings.turn(case, alone[0], alone)]) > 1


def test_the_callers_own_process_is_not_killed() -> None:
    assert _turns(Group(client="llm", setting=UNI)) == ["test_closing_leaves_nothing"]


@pytest.mark.parametrize("setting", [MP, MP_TP2, UNI], ids=lambda setting: setting.name)
def test_what_the_extractor_gets_was_recorded_for_it(setting: Setting) -> None:
    """A case that matches a snapshot runs where one of that setting was written."""
    group = Group(client="extract", setting=setting)
    recorded = settings.recorded(group)
    assert recorded is not None
    assert _turns(group) == _turns(recorded)
