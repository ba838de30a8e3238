from __future__ import annotations

from typing import TYPE_CHECKING

import made
import pytest

from harness import environments, releases, surface, watched, wheels
from harness.errors import EnvironmentUnusableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> releases.Build:
    """The build of a release with an environment that holds one of the watched objects, and an empty cache."""
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    made.environment(tmp_path / "environments", "0.16.0", eos=True)
    return releases.find("0.16.0").build("cpu")


def test_the_surface_comes_from_the_environment_and_then_from_the_cache(
    release: releases.Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = wheels.surface_of(release)
    assert first["Request.__init__"].parameters == ("request_id", "eos_token_id", "priority=0"), first
    monkeypatch.setattr(wheels, "_installed", lambda _build: pytest.fail("read again"))
    again = wheels.surface_of(release)
    assert again == first, "what comes from the cache is not what was read"


@pytest.mark.parametrize(
    ("name", "more"),
    [("WATCHED", ((("v1.request:New",), ()),)), ("REQUIREMENTS", ("numpy",))],
    ids=["row", "package"],
)
def test_watching_more_reads_again(
    release: releases.Build, monkeypatch: pytest.MonkeyPatch, name: str, more: tuple[object, ...]
) -> None:
    wheels.surface_of(release)
    monkeypatch.setattr(watched, name, (*getattr(watched, name), *more))
    read: list[str] = []

    def installed(build: releases.Build) -> surface.Surface:
        read.append(build.version)
        return {}

    monkeypatch.setattr(wheels, "_installed", installed)
    monkeypatch.setattr(wheels, "_from_wheel", lambda build: pytest.fail(f"fetched {build.version}"))
    with pytest.raises(BaseException, match=r"fetched 0\.16\.0"):
        wheels.surface_of(release)
    assert read == ["0.16.0"], read


def test_a_wheel_that_cannot_be_had_is_exit_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho 'error: dns error' >&2\nexit 2\n", encoding="utf-8")
    uv.chmod(0o755)
    monkeypatch.setattr("harness.uv.executable", lambda: str(uv))
    monkeypatch.setenv("HARNESS_ENVIRONMENTS", str(tmp_path / "none"))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EnvironmentUnusableError, match="cannot be reached") as caught:
        wheels.surface_of(wheels.any_build(releases.find("0.33.0")))
    assert caught.value.exit_code == 4
    assert "dns error" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_says_so(release: releases.Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", "/proc/nowhere")
    with pytest.raises(UsageError, match="HARNESS_CACHE"):
        wheels.surface_of(release)


def test_a_torn_cache_is_read_again(release: releases.Build, tmp_path: Path) -> None:
    whole = wheels.surface_of(release)
    (kept,) = (tmp_path / "cache" / "surfaces").iterdir()
    for torn in ('[{"name": "Request', "[1]", '[{"name": "x"}]', ""):
        kept.write_text(torn, encoding="utf-8")
        assert wheels.surface_of(release) == whole, torn


def test_what_is_at_hand_is_kept_and_nothing_is_fetched(
    release: releases.Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "_from_wheel", lambda build: pytest.fail(f"fetched {build.version}"))
    assert wheels.surface_at_hand(releases.find("0.15.1").build("cpu")) is None
    found = wheels.surface_at_hand(release)
    assert found is not None
    assert "Request.__init__" in found, found
    monkeypatch.setattr(wheels, "_installed", lambda _build: pytest.fail("read again"))
    assert wheels.surface_at_hand(release) == found


def _no_marker(path: Path) -> None:
    (path / environments.MARKER).unlink()


def _torn_marker(path: Path) -> None:
    (path / environments.MARKER).write_text('{"fingerprint": "', encoding="utf-8")


def _made_from_something_else(path: Path) -> None:
    (path / environments.MARKER).write_text('{"fingerprint": "0"}', encoding="utf-8")


def _no_interpreter(path: Path) -> None:
    (path / "bin" / "python").unlink()


def _no_package(path: Path) -> None:
    package = path / "lib" / "python3.11" / "site-packages" / "vllm"
    package.rename(package.with_name("elsewhere"))


def _torn_module(path: Path) -> None:
    (path / "lib/python3.11/site-packages/vllm/v1/request.py").write_text("class Request:\n    def __in", "utf-8")


HALVES = [_no_marker, _torn_marker, _made_from_something_else, _no_interpreter]


@pytest.mark.parametrize("half", [*HALVES, _no_package, _torn_module])
def test_nothing_is_read_or_kept_of_an_environment_that_is_not_whole(
    release: releases.Build, tmp_path: Path, half: Callable[[Path], None]
) -> None:
    half(tmp_path / "environments" / "0.16.0")
    assert wheels.surface_at_hand(release) is None
    assert not (tmp_path / "cache").exists(), sorted((tmp_path / "cache").rglob("*"))


@pytest.mark.parametrize("half", HALVES)
def test_nothing_is_kept_of_an_environment_that_is_taken_away_while_it_is_read(
    release: releases.Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: Callable[[Path], None]
) -> None:
    read = surface.read

    def meanwhile(root: Path) -> surface.Surface:
        half(tmp_path / "environments" / "0.16.0")
        return read(root)

    monkeypatch.setattr(surface, "read", meanwhile)
    assert wheels.surface_at_hand(release) is None
    assert not (tmp_path / "cache").exists(), sorted((tmp_path / "cache").rglob("*"))
