"""Reports of many runs: the numbers are the evidence's, what evidence says stays text, only a pass is a pass."""

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import records
from conftest import TESTS
from records import HOSTILE, SOUND

from harness import cli, releases
from harness.errors import UsageError
from harness.report import gather
from harness.report.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the cache nor the environments of whoever runs the tests."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "environments"))


@pytest.fixture
def kinds(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    records.every_kind(folder)
    return folder


def _write(folder: Path, *arguments: str) -> tuple[int, dict[str, str]]:
    """The exit code of `harness report` and the text of what it wrote."""
    out = folder.parent / "out"
    flags = [f"--{name}={out / name}" for name in ("html", "markdown", "junit")]
    code = cli.main(["report", str(folder), *flags, *arguments])
    return code, {path.name: path.read_text(encoding="utf-8") for path in out.iterdir()}


class Page(html.parser.HTMLParser):
    """What a page holds, read without the code that made it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.cells: Counter[tuple[str, str, str, str]] = Counter()
        self.verdicts: list[tuple[str, str]] = []
        self.said = ""
        self._release = ""
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.loads += [given[name] for name in ("src", "href", "action", "data") if name in given]
        self.handlers += [name for name in given if name.startswith("on")]
        self._inside = given.get("class", "").split()
        if "row" in self._inside:
            self._release = ""
        if label := given.get("aria-label"):
            place, _, counts = label.rpartition(": ")
            group, client = place.split(", ")
            for count, outcome in re.findall(r"(\d+) ([\w-]+)", counts):
                self.cells[self._release, group, client, outcome] += int(count)

    def handle_data(self, data: str) -> None:
        self.said += data
        if self._inside == ["release"] and not self._release:
            self._release = data.strip()
        if self._inside[:1] == ["verdict"] and data.strip():
            self.verdicts.append((self._release, data.strip()))


def _from_evidence(folder: Path) -> Counter[tuple[str, str, str, str]]:
    """How many cases of each outcome a release, case group and client have, from the files alone."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for path in folder.rglob("evidence.json"):
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if body["seconds"] == 1.0:  # Edited.
            continue
        for case in body["cases"]:
            group = re.fullmatch(r"test_(\w+)\.py", case["id"].split("::")[0])
            client = re.search(r"\[(executor|llm)-\w+-tp\d", case["id"])
            assert group is not None, case
            counted[
                body["environment"]["release"], group[1], client[1] if client else "no engine", case["outcome"]
            ] += 1
    return counted


def test_numbers_of_the_page_are_the_evidences(kinds: Path) -> None:
    page = Page(_write(kinds)[1]["html"])
    assert page.cells == _from_evidence(kinds)
    assert page.cells["0.13.0", "reply", "executor", "failed"] == 1, page.cells


def test_numbers_of_the_json_are_the_evidences(kinds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(kinds), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for run in said["runs"]:
        for found in run["cells"]:
            for outcome in gather.OUTCOMES:
                counted[run["release"], found["group"], found["client"], outcome] += found.get(outcome, 0)
    assert +counted == _from_evidence(kinds)
    assert said["conforms"] is False


def test_numbers_of_the_markdown_are_the_evidences(kinds: Path) -> None:
    lines = _write(kinds)[1]["markdown"].splitlines()
    heading, _dashes, *rows = [line.strip("|").split("|") for line in lines if line.startswith("|")][:10]
    groups = [name.strip() for name in heading[2:]]
    passed = Counter[tuple[str, str]]()
    for row in rows:
        for group, said in zip(groups, row[2:], strict=True):
            number = re.match(r" (\d+)\b", said)
            passed[row[0].split()[0], group] += int(number[1]) if number else 0
    expected = Counter[tuple[str, str]]()
    for (release, group, _client, outcome), count in _from_evidence(kinds).items():
        expected[release, group] += count if outcome == "passed" else 0
    assert +passed == +expected


def test_numbers_of_the_junit_are_the_evidences(kinds: Path) -> None:
    root = ET.fromstring(_write(kinds)[1]["junit"])  # noqa: S314 - it is ours.
    counted: Counter[tuple[str, str]] = Counter()
    for suite in root:
        for case in suite.findall("testcase"):
            marks = [child.get("type", "") for child in case if child.tag != "system-out"]
            if case.get("name") != "evidence":
                counted[suite.get("name", "").removesuffix(" cpu"), marks[0] if marks else "passed"] += 1
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(attribute) == str(len(suite.findall(f"testcase/{tag}"))), suite.attrib
        assert suite.get("tests") == str(len(suite.findall("testcase"))), suite.attrib
    expected: Counter[tuple[str, str]] = Counter()
    for (release, _group, _client, outcome), count in _from_evidence(kinds).items():
        expected[release, outcome] += count
    assert counted == expected


def test_every_verdict_is_shown_as_what_it_is(kinds: Path) -> None:
    code, texts = _write(kinds, "--expect", "0.32.0")
    assert code == 1
    assert Page(texts["html"]).verdicts == [
        ("?", "invalid"),
        ("?", "invalid"),
        ("0.11.0", "conforms"),
        ("0.12.0", "conforms"),
        ("0.13.0", "findings"),
        ("0.14.1", "incomplete"),
        ("0.15.1", "incomplete"),
        ("0.16.0", "incomplete"),
        ("0.32.0", "missing"),
    ]
    root = ET.fromstring(texts["junit"])  # noqa: S314 - it is ours.
    sound = [suite.get("name") for suite in root if suite.get("failures") == suite.get("errors") == "0"]
    assert sound == ["0.11.0 cpu", "0.12.0 cpu"]
    assert texts["markdown"].count("| conforms |") == 2
    for text in texts.values():
        for said in ("was changed after it was written", "is not JSON", "cut short", "there is no evidence of it"):
            assert said in text, said


def test_what_evidence_says_is_text_in_a_page(kinds: Path) -> None:
    text = _write(kinds)[1]["html"]
    page = Page(text)
    assert (page.tags["script"], page.tags["img"], page.tags["b"] > 0) == (0, 0, True), page.tags
    assert page.handlers == []
    assert legible(HOSTILE) in page.said
    assert "a kernel <b>reads</b> wrong" in page.said


def test_a_page_needs_nothing_else(kinds: Path) -> None:
    text = _write(kinds)[1]["html"]
    page = Page(text)
    assert page.loads == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_what_evidence_says_is_text_in_markdown(kinds: Path) -> None:
    lines = _write(kinds)[1]["markdown"].splitlines()
    fenced_now = False
    for line in lines:
        if line.startswith("```"):
            fenced_now = not fenced_now
        elif not fenced_now:
            assert not re.search(r"(?<!\\)<(script|img|b)\b", line), line
    assert not fenced_now
    assert len({line.count("|") - line.count("\\|") for line in lines if re.match(r"\| [\d/]", line)}) <= 2, lines


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda folder: records.write(folder, "0.16.0", SOUND), 0),
        (lambda folder: records.write(folder, "0.16.0", [*SOUND, records.case("test_x.py::a", "known-fault")]), 0),
        (lambda folder: records.write(folder, "0.16.0", [*SOUND, records.case("test_x.py::a", "failed")]), 1),
        (lambda folder: records.write(folder, "0.16.0", [*SOUND, records.case("test_x.py::a", "error")]), 1),
        (lambda folder: records.write(folder, "0.16.0", [*SOUND, records.case("test_x.py::a", "skipped")]), 1),
        (lambda folder: records.write(folder, "0.16.0", [records.case("test_x.py::a", "known-fault")]), 1),
        (lambda folder: records.write(folder, "0.16.0", SOUND, interrupted=True), 1),
        (lambda folder: records.write(folder, "0.16.0", SOUND, keyword="reply"), 1),
        (lambda folder: records.write(folder, "0.16.0", []), 1),
        (lambda folder: records.edit(records.write(folder, "0.16.0", SOUND), verdict="conforms", cases=[]), 1),
        (lambda folder: records.write(folder, "0.16.0", SOUND, settings={}), 1),
        (lambda folder: records.write(folder, "0.16.0", SOUND, environment={}), 1),
        (lambda folder: (folder / "evidence.json").mkdir(parents=True), 1),
        (lambda folder: folder.mkdir(), 2),
        (Path.exists, 2),
    ],
)
def test_only_what_conforms_exits_0(tmp_path: Path, make: Callable[[Path], Any], code: int) -> None:
    make(tmp_path / "results")
    assert cli.main(["report", str(tmp_path / "results")]) == code


def test_one_bad_run_among_good_ones_exits_1(tmp_path: Path) -> None:
    records.write(tmp_path / "a", "0.15.1", SOUND)
    records.write(tmp_path / "b", "0.16.0", [*SOUND, records.case("test_x.py::a", "failed")])
    assert cli.main(["report", str(tmp_path / "a")]) == 0
    assert cli.main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 1


def test_expected_releases_must_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records.write(tmp_path, "0.16.0", SOUND)
    assert cli.main(["report", str(tmp_path), "--expect", "0.16.0"]) == 0
    assert cli.main(["report", str(tmp_path), "--expect", "0.16.0", "--device", "cuda"]) == 1
    capsys.readouterr()
    assert cli.main(["report", str(tmp_path), "--expect", "all"]) == 1
    said = capsys.readouterr().out
    missing = [line.split()[0] for line in said.splitlines() if " missing " in line]
    assert missing == [row.version for row in releases.with_build("cpu") if row.version != "0.16.0"]
    assert cli.main(["report", str(tmp_path), "--expect", "0.33.0"]) == 4
    assert cli.main(["report", str(tmp_path), "--expect", "0.16.1"]) == 2


@pytest.mark.parametrize(
    ("changes", "enough"),
    [
        ({}, True),
        ({"whole": False, "clients": ["mine:C"]}, True),
        ({"whole": False, "narrowed": True}, False),
        ({"whole": False, "narrowed": True, "clients": ["mine:C"], "groups": ["mine:C-mp-tp2"]}, False),
    ],
    ids=["whole", "a client's", "some engines", "a client's on some engines"],
)
def test_evidence_of_a_part_is_not_what_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], enough: bool
) -> None:
    records.write(tmp_path / "part", "0.16.0", SOUND, **changes)
    assert cli.main(["report", str(tmp_path)]) == 0
    assert cli.main(["report", str(tmp_path), "--expect", "0.16.0"]) == (0 if enough else 1)
    assert ("there is evidence of a part of the suite only" in capsys.readouterr().out) != enough
    records.write(tmp_path / "whole", "0.16.0", SOUND)
    assert cli.main(["report", str(tmp_path), "--expect", "0.16.0"]) == 0


def test_a_report_says_when_its_runs_were_started(tmp_path: Path) -> None:
    early = records.write(tmp_path, "0.16.0", SOUND, started="2026-11-28T09:00:00+00:00")
    late = records.write(tmp_path, "0.15.1", SOUND, started="2026-11-29T09:00:00+00:00")
    assert gather.gather([late, early]).when == "2026-11-28T09:00:00+00:00 to 2026-11-29T09:00:00+00:00"
    assert gather.gather([early]).when == "2026-11-28T09:00:00+00:00"
    assert gather.gather([], [releases.find("0.16.0").build("cpu")]).when == ""


def test_the_committed_table_has_a_row_for_every_pinned_cpu_release() -> None:
    lines = (TESTS.parent / "docs" / "conformance.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1].strip() for line in lines if re.match(r"\| \d+\.\d+\.\d+ cpu \|", line)]
    pinned = [f"{release.version} cpu" for release in releases.with_build("cpu")]
    assert rows == pinned, "harness report results --expect all --markdown docs/conformance.md"


def test_a_file_can_be_given(tmp_path: Path) -> None:
    path = records.write(tmp_path, "0.16.0", SOUND).rename(tmp_path / "mine.json")
    assert cli.main(["report", str(path)]) == 0
    with pytest.raises(UsageError, match=r"no evidence\.json below"):
        gather.files([tmp_path])


def test_a_report_that_cannot_be_written_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = records.write(tmp_path, "0.16.0", SOUND)
    assert cli.main(["report", str(path), "--html", str(path / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_limited_runs_say_to_what(tmp_path: Path) -> None:
    path = records.write(
        tmp_path, "0.16.0", SOUND, clients=["llm"], groups=["llm-uni-tp1"], whole=False, keyword="reply"
    )
    (row,) = gather.gather([path]).rows
    assert row.note == "limited to the engines llm-uni-tp1; limited to the cases that match 'reply'"


@pytest.mark.parametrize(("other", "note"), [("0.15.1", "held to the snapshots of 0.15.1, not of"), ("0.16.0", "")])
def test_a_run_held_to_another_release_says_so(tmp_path: Path, other: str, note: str) -> None:
    (row,) = gather.gather([records.write(tmp_path, "0.16.0", SOUND, snapshots_of=other)]).rows
    assert row.note.startswith(note)
    assert bool(row.note) == bool(note), row.note


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "0.26.0 cpu"),
        ({"dtype": "bfloat16"}, "0.26.0 cpu bfloat16"),
        ({"device": "cuda", "dtype": "bfloat16"}, "0.26.0 cuda"),
        ({"device": "cuda", "dtype": "bfloat16", "model_runner": "v1"}, "0.26.0 cuda v1"),
    ],
)
def test_runs_are_named_by_what_was_chosen_for_them(tmp_path: Path, changes: dict[str, str], name: str) -> None:
    (row,) = gather.gather([records.write(tmp_path, "0.26.0", SOUND, **changes)]).rows
    assert (row.name, row.verdict, row.note) == (name, "conforms", "")


def test_evidence_is_compared_with_the_snapshots_that_it_names(tmp_path: Path) -> None:
    path = records.write(tmp_path, "0.26.0", SOUND, device="cuda", snapshots="0.26.0-cuda")
    (row,) = gather.gather([path]).rows
    assert "of another state of the suite" in row.note


def test_evidence_of_another_suite_says_so_and_is_what_it_was(tmp_path: Path) -> None:
    (row,) = gather.gather([records.write(tmp_path, "0.16.0", SOUND, suite="0" * 64)]).rows
    assert (row.verdict, row.note) == ("conforms", "of another state of the suite than this one")
    (row,) = gather.gather([records.write(tmp_path, "0.16.0", SOUND)]).rows
    assert (row.verdict, row.note) == ("conforms", "")


@pytest.mark.parametrize(
    ("clients", "groups", "parameters", "client"),
    [
        (["executor", "llm"], ["executor-mp-tp2", "llm-uni-tp1"], "executor-mp-tp2-none-skipped", "executor"),
        (["llm"], ["llm-uni-tp1"], "llm-uni-tp1", "llm"),
        (["mine:C", "mine:C-uni"], ["mine:C-uni-mp-tp1"], "mine:C-uni-mp-tp1-layer1", "mine:C-uni"),
        (["llm"], ["llm-uni-tp1"], "llm-uni-tp10", gather.NO_CLIENT),
        (["llm"], ["llm-uni-tp1"], "models", gather.NO_CLIENT),
    ],
)
def test_case_belongs_to_the_client_of_its_engine(
    tmp_path: Path, clients: list[str], groups: list[str], parameters: str, client: str
) -> None:
    cases = [records.case(f"test_reply.py::test_a[{parameters}]")]
    (row,) = gather.gather([records.write(tmp_path, "0.16.0", cases, clients=clients, groups=groups)]).rows
    assert [(cell.group, cell.client) for cell in row.cells] == [("reply", client)]


def test_releases_are_in_order_of_their_age(tmp_path: Path) -> None:
    paths = [records.write(tmp_path, name, SOUND) for name in ("0.9.0", "0.11.0", "0.10.2", "not a version")]
    assert [row.release for row in gather.gather(paths).rows] == ["not a version", "0.9.0", "0.10.2", "0.11.0"]
