from __future__ import annotations

import argparse
import re
import shlex
from typing import TYPE_CHECKING

import pages
import pytest

from harness import settings
from harness.commands import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

EVERY_PAGE = pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
CASES = sorted(path.stem.removeprefix("test_") for path in (pages.ROOT / "cases").glob("test_*.py"))
# Folders of the project; what is in others is a user's, or made by a run.
FOLDERS = ("harness/", "cases/", "snapshots/", "tests/", "bench/", "docs/")


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"harness {command}")
    COMMANDS[command].add(parser)
    return parser


def _options(command: str) -> set[str]:
    """Every spelling of every option of a command, but those for its help."""
    return {word for action in _parser(command)._actions for word in action.option_strings} - {"-h", "--help"}


def _words(page: Path) -> list[str]:
    return [word for text in [*pages.typed(page), *pages.named(page)] for word in text.split()]


@EVERY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in pages.links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in pages.anchors(target)):
            broken.append(link)
    assert broken == []


@EVERY_PAGE
def test_files_that_are_named_exist(page: Path) -> None:
    paths = {word for word in _words(page) if word.startswith(FOLDERS) and not re.search(r"[<>*]", word)}
    assert sorted(path for path in paths if not (pages.ROOT / path).exists()) == []


@EVERY_PAGE
def test_modules_that_are_run_exist(page: Path) -> None:
    run = set(re.findall(r"-m (harness[.\w]*)", page.read_text(encoding="utf-8")))
    paths = {module: pages.ROOT / module.replace(".", "/") for module in run}
    assert (
        sorted(name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").exists())) == []
    )


@EVERY_PAGE
def test_commands_to_type_are_understood(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in pages.typed(page):
        for found in re.finditer(r"(?:^|[ (])harness ([^)]*)", line):
            command, *arguments = shlex.split(found[1], comments=True)
            assert command in COMMANDS, line
            try:
                _parser(command).parse_args(arguments)
            except SystemExit:
                pytest.fail(f"{line}\n{capsys.readouterr().err}")


@EVERY_PAGE
def test_commands_that_are_named_have_their_options(page: Path) -> None:
    for text in pages.named(page):
        found = re.match(r"harness ([a-z][a-z-]*)", text)
        if found is not None:
            assert found[1] in COMMANDS, text
            given = {word for word in text.partition(" -- ")[0].split() if re.match(r"--?\w", word)}
            assert given <= _options(found[1]), text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_is_told(command: str) -> None:
    texts = [page.read_text(encoding="utf-8") for page in pages.PAGES]
    telling = [text for text in texts if re.search(rf"harness {command}(?![\w-])", text)]
    told = {word for text in telling for word in re.findall(r"(?<![\w-])--?[a-z][\w-]*", text)}
    assert telling != [], f"no page names `harness {command}`"
    assert sorted(_options(command) - told) == [], f"no page that names `harness {command}` tells of these"


def test_every_how_to_has_one_row_in_the_readme() -> None:
    rows = [line for line in pages.prose(pages.README).splitlines() if line.startswith("| ")]
    counts = {pages.name(page): sum(f"]({pages.name(page)})" in row for row in rows) for page in pages.HOW_TO}
    assert counts == dict.fromkeys(counts, 1)


def test_every_page_can_be_reached_from_the_readme() -> None:
    assert sorted({pages.name(page) for page in pages.PAGES[1:]} - set(pages.links(pages.README))) == []


def test_the_readme_shows_a_whole_run() -> None:
    (sample,) = pages.blocks(pages.README, "text")
    engines = [group.name for group in settings.plan([], [])]
    assert f"{len(engines)} engines: {', '.join(engines)}" in " ".join(sample.split())
    rows = [line.split() for line in sample.partition("not-applicable\n")[2].partition("...")[0].splitlines()]
    assert [row[0] for row in rows] == [case for case in CASES if case != "repairs"]
    counts = [sum(int(row[column]) for row in rows if len(row) > column) for column in (1, 2)]
    assert "conforms: {} passed, {} not-applicable".format(*counts) in sample


def test_every_case_file_is_explained() -> None:
    text = (pages.ROOT / "docs/how-to/read-findings.md").read_text(encoding="utf-8")
    assert [case for case in CASES if f"| `test_{case}.py` | " not in text] == []


def test_every_setting_is_explained() -> None:
    text = (pages.ROOT / "docs/how-to/check-my-environment.md").read_text(encoding="utf-8")
    names = {group.setting.name for group in settings.plan([], [])}
    assert sorted(setting for setting in names if f"| `{setting}` | " not in text) == []
