from __future__ import annotations

import pytest

from harness.report.text import aligned, cell, fenced, legible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext é ✗", "plain\n\ttext é ✗"),
        ("\x1b[31mred\r\x00", "\\x1b[31mred\\r\\x00"),
        ("\u202egnp\ud800\uffff\x85", "\\u202egnp\\ud800\\uffff\\x85"),
    ],
)
def test_what_cannot_be_shown_is_written_out(text: str, shown: str) -> None:
    assert legible(text) == shown


@pytest.mark.parametrize("text", ["", "a", "```\nb\n```", "`````"])
def test_nothing_in_a_code_block_ends_it(text: str) -> None:
    first, *inside, last = fenced(text)
    assert first == last
    assert set(first) == {"`"}
    assert inside == text.splitlines()
    assert all(first not in line for line in inside), inside


def test_cell_is_one_line_of_text() -> None:
    assert cell("a\n|b| <i> [x](y) `c` *d* e_f") == r"a \|b\| \<i> \[x\](y) \`c\` \*d\* e_f"


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_with_text() -> None:
    rows = [["cases", "passed", "failed"], ["a", "12", ""], ["longer", "", "3"]]
    assert aligned(rows) == ["cases   passed  failed", "a       12", "longer          3"]
    assert aligned(rows, right=(1, 2)) == ["cases   passed  failed", "a           12", "longer               3"]
    assert aligned([]) == []
