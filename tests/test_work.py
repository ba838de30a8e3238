"""What a run works in, what it leaves beside its evidence, and what it leaves alone there."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

import pytest
from toys import SLEEPER

from harness import processes, work
from harness.errors import HarnessError, UsageError
from harness.work import MARK, work_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_work_folder_ends_marked_hosts_keeps_logs_and_goes(tmp_path: Path) -> None:
    host = subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "old.log").touch()
    (logs / MARK).write_text("old.log\n", encoding="utf-8")
    with work_folder(logs) as folder:
        (folder / "logs" / f"{host.pid}.pid").touch()
        (folder / "logs" / "llm.log").write_text("said", encoding="utf-8")
    host.wait()
    assert host.returncode == -signal.SIGKILL
    assert _files(logs) == {"llm.log": "said", MARK: "llm.log\n"}
    assert not folder.exists()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, HarnessError, OSError])
def test_work_folder_goes_whatever_happens(tmp_path: Path, raised: type[BaseException]) -> None:
    with pytest.raises(raised), work_folder(tmp_path / "logs") as folder:
        raise raised
    assert not folder.exists()
    assert (tmp_path / "logs").exists()


def test_interrupt_while_hosts_are_ended_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_session: int) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "end_session", interrupted)
    with pytest.raises(KeyboardInterrupt), work_folder(tmp_path / "logs") as folder:
        (folder / "logs" / "4711.pid").touch()
    assert not folder.exists()


def test_logs_that_cannot_be_kept_do_not_hide_the_result(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with work_folder(tmp_path / "file" / "logs") as folder:
        pass
    assert not folder.exists()


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


USERS = ("logs/app.log", "logs/old/deep.log", "logs/llm.log", "junit.xml", "notes.txt")


@pytest.mark.parametrize("name", ["evidence.json", "ev.json", "junit.xml.json"])
@pytest.mark.parametrize("theirs", [*((path,) for path in USERS), USERS, ("logs",)], ids="+".join)
def test_run_takes_away_nothing_that_no_run_made(tmp_path: Path, name: str, theirs: tuple[str, ...]) -> None:
    for path in theirs:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"mine: {path}", encoding="utf-8")
    before = _files(tmp_path)
    results = tmp_path / name
    if name == "evidence.json" and theirs != ("notes.txt",):
        with pytest.raises(UsageError, match="move it away, or give another place"):
            work.claim(results)
        assert _files(tmp_path) == before
        return
    for said in ("first", "second"):
        work.claim(results)
        with work_folder(work.logs_of(results)) as folder:
            (folder / "logs" / "llm.log").write_text(said, encoding="utf-8")
        work.junit_of(results).write_text(said, encoding="utf-8")
        assert (work.logs_of(results) / "llm.log").read_text(encoding="utf-8") == said
    assert {path: said for path, said in _files(tmp_path).items() if path in before} == before


def test_what_others_put_into_our_folder_of_logs_stays(tmp_path: Path) -> None:
    results = tmp_path / "evidence.json"
    for name in ("first.log", "second.log"):
        work.claim(results)
        with work_folder(work.logs_of(results)) as folder:
            (folder / "logs" / name).touch()
        (tmp_path / "logs" / "app.log").write_text("mine", encoding="utf-8")
    assert _files(tmp_path / "logs") == {"second.log": "", "app.log": "mine", MARK: "second.log\n"}


def test_mark_names_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / MARK).write_text(f"../mine\n{tmp_path}/mine\n", encoding="utf-8")
    (tmp_path / "mine").touch()
    with work_folder(tmp_path / "logs"):
        pass
    assert (tmp_path / "mine").exists()
