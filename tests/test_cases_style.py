from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from conftest import TESTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = sorted((TESTS.parent / "cases").glob("test_*.py"))


def _cases() -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node


def test_there_are_cases() -> None:
    assert len(FILES) > 5
    assert len(list(_cases())) > 10


@pytest.mark.parametrize("node", [pytest.param(node, id=f"{path.stem}::{node.name}") for path, node in _cases()])
def test_case_says_what_it_promises_in_one_line(node: ast.FunctionDef) -> None:
    promise = (ast.get_docstring(node) or "").splitlines()[:1]
    assert promise, f"{node.name} has no docstring: findings quote it"
    assert promise[0].endswith("."), promise


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cases_know_clients_and_not_vllm(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert [name for name in imported if name.partition(".")[0] in {"vllm", "nox"}] == []


def test_no_two_cases_share_a_name() -> None:
    names = [node.name for _path, node in _cases()]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)


def test_snapshots_belong_to_cases() -> None:
    stems = {path.stem for path in FILES}
    strange = [path for path in (TESTS.parent / "snapshots").rglob("*.json") if path.stem not in stems]
    assert strange == []
