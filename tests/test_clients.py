from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import toys

from harness import cli, clients
from harness.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_clients_own_name() -> None:
    assert id(clients.load("toys:SOUND")) == id(toys.SOUND)


def test_ours_are_there_by_name() -> None:
    assert set(clients.IN_HOUSE) == {
        "executor",
        "llm",
        "extract",
        "extract-hidden-states",
        "speculators-0.3.0",
        "speculators-0.3.0-repaired",
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lmm", "give one of executor, llm, .*, or module:attribute"),
        ("no_such_module:CLIENT", r"No module named 'no_such_module'\. Put the folder .*PYTHONPATH=\$PWD .*install"),
        ("toys.deeper:CLIENT", r"'toys' is not a package\. Put the folder"),
        ("toys:NOTHING", r"no attribute 'NOTHING'\. Give the name of an object in toys"),
        ("toys:NO_CLIENT", "lacks name, refuses, open"),
        ("toys:", "give one of"),
        ("", "give one of"),
    ],
)
def test_unknown_client_exits_2_with_advice(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        clients.load(name)
    assert caught.value.exit_code == 2
    assert repr(name) in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("CLIENT = 1 / 0", "division by zero. Correct it"),
        ("CLIENT = (", "never closed .*. Correct it"),
        ("import no_such_module", "'no_such_module'. Install what it imports"),
        ("import their", "'their'. Install what it imports"),
        ("CLIENT = undefined", "not defined. Correct it"),
        ("import sys; CLIENT = sys.nothing", "'nothing'. Correct it"),
    ],
    ids=lambda text: text,
)
def test_module_that_cannot_be_imported_is_the_authors_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    (tmp_path / "their_client.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"cannot be loaded: .*{said}"):
        clients.load("their_client:CLIENT")


def test_help_of_check_names_every_client(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["check", "--help"])
    said = "".join(capsys.readouterr().out.split())
    assert f"{','.join(clients.IN_HOUSE)},ormodule:attribute" in said, said


def test_requirements_are_those_of_all_clients_once() -> None:
    assert clients.requirements(["llm", "mine:CLIENT"]) == ()
    assert clients.requirements(["speculators-0.3.0", "llm", "speculators-0.3.0-repaired"]) == ("speculators==0.3.0",)


def test_every_client_with_requirements_is_ours() -> None:
    assert set(clients.REQUIREMENTS) <= set(clients.IN_HOUSE)


def test_clients_open_with_repairs_only_if_they_have_some() -> None:
    assert clients.repairs(["toys:MENDED", "toys:SOUND"], "cpu") == {"toys:MENDED": ("stand-in", "wheel", "wiring")}


def test_empty_module_is_a_wrong_name() -> None:
    with pytest.raises(UsageError, match="cannot be loaded"):
        clients.load(":CLIENT")
