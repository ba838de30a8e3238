"""An extraction beside other processes: two on one folder, and one that is killed or interrupted."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import extracting
import pytest
import toy_extraction as toy
from extracting import SAMPLES, Place, require_whole

from harness import processes
from harness.errors import INTERRUPTED, UsageError
from harness.extraction import conduct, folder
from harness.extraction.shard import Shard

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("toys")
place = extracting.place


def _child(client: str, place: Place) -> list[str]:
    paths = map(str, (place.model, place.prompts, place.output))
    return [sys.executable, toy.__file__, f"toy_extraction:{client}", *paths]


def test_nobody_needs_to_read_what_it_says(place: Place) -> None:
    run = subprocess.Popen(_child("SLOW", place), stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    run.stdout.readline()
    run.stdout.close()
    assert run.wait() == 0
    require_whole(place)


def test_second_run_on_a_folder_is_refused_while_the_first_goes_on(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    with folder.opened(place.output, Shard()):
        assert place.run() == UsageError.exit_code
        assert f"process {os.getpid()} on" in capsys.readouterr().err
        assert place.run("--shard", "1/2") == 0, "another shard's is another lock"
    assert [name for name in place.names() if "lock" in name and "safetensors" not in name] == []


def test_lock_is_waited_for_while_a_killed_run_ends(place: Place, dead: int, tmp_path: Path) -> None:
    """The command is gone, what it had started is about to be: it has the lock, and may still write."""
    place.output.mkdir()
    lock = place.output / ".lock"
    lock.write_text(
        json.dumps({"pid": dead, "machine": os.uname().nodename, "work": str(tmp_path)}), encoding="utf-8"
    )
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = subprocess.Popen(_child("SOUND", place), stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(2.0)
        assert place.names() == [".lock"]
    out, _ = waiting.communicate()
    assert waiting.returncode == 0, out
    assert tmp_path.exists(), "only a folder that an extraction made may be removed"
    require_whole(place)


def test_killed_at_any_point_it_goes_on(place: Place) -> None:
    """Killed from its start to past its end, and nothing is lost or doubled."""
    chance = random.Random(4)  # noqa: S311 - the same points in every run, as far as clocks go.
    started = time.monotonic()
    subprocess.run(_child("SLOW", place), check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - started
    undisturbed = place.digests()
    for path in place.output.iterdir():
        path.unlink()
    for _ in range(12):
        run = subprocess.Popen(_child("SLOW", place), stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.0, took))
        run.kill()
        run.wait()
        for row in place.journal() if (place.output / "samples.jsonl").exists() else []:
            assert undisturbed[row["file"]] == place.digests()[row["file"]]
    subprocess.run(_child("SLOW", place), check=True, stdout=subprocess.DEVNULL)
    assert place.digests() == undisturbed
    require_whole(place)


def test_interrupted_it_closes_and_says_how_to_go_on(place: Place) -> None:
    run = subprocess.Popen(_child("SLOW", place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    noted = place.output / "samples.jsonl"
    while not noted.exists() or not noted.stat().st_size:
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    out, _err = run.communicate(timeout=30)
    assert run.returncode == INTERRUPTED
    there = len(place.journal())
    assert 0 < there < SAMPLES
    said = json.loads(out.splitlines()[-1])
    assert said["event"] == "interrupted"
    assert f"{there} of {SAMPLES} samples are whole in {place.output}, and the same command goes on" in said["text"]
    assert [name for name in place.names() if name.endswith(".partial")] == []
    assert place.run() == 0
    require_whole(place)


def test_killed_it_takes_its_engine_along_before_the_lock(place: Place) -> None:
    run = subprocess.Popen(_child("SLOW", place), stdout=subprocess.DEVNULL)
    while not (marks := list(place.output.glob(f"{conduct.LOGS}/*.pid"))):
        time.sleep(0.01)
    host = int(marks[0].stem)
    run.kill()
    run.wait()
    with folder.opened(place.output, Shard()):
        assert processes.ended([host]) == [host]
