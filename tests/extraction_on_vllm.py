"""`harness extract` on the vLLM installed here, with the tiny KimiK25 at TP=2: ``nox -s extraction``.

The engines boot one after the other, some twenty times: five minutes and more on two cores.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from harness import agreement, processes, reference
from harness.arrays import TOLERANCES, difference
from harness.clients.contract import EngineSpec, Sample
from harness.errors import FINDINGS, INTERRUPTED, DeliveryError
from harness.extraction.conduct import LOGS
from harness.models import WRITERS, deepseek_v2

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYERS = (4, 0, 2)
TOLERANCE = TOLERANCES["float32"]
SAMPLES = 200
LONGEST = 120
KILLS = 10
# One prompt a forward: what a sample is computed with decides its last bits, and an interruption changes that.
ALONE = ("--max-num-seqs", "1")
SHARED = Path("/dev/shm")  # noqa: S108 - where shared memory lives, not a temporary file.
# What vLLM's reader of its connector's files is in; older releases have the connector without it, or neither.
READER = "vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector"


@dataclass(frozen=True)
class Judged:
    """What `agree` wants to know of an engine that is gone by then."""

    spec: EngineSpec
    tolerance: float = TOLERANCE


class Place:
    """A checkpoint, prompts of which every tenth is text, and folders to extract into."""

    def __init__(self, folder: Path, samples: int) -> None:
        self.folder = folder
        self.model = WRITERS["kimi-k25"](folder / "model")
        chance = random.Random(0)  # noqa: S311 - prompts, not secrets.
        self.ids = [
            [chance.randrange(2, deepseek_v2.VOCAB_SIZE) for _ in range(chance.randint(1, LONGEST))]
            for _ in range(samples)
        ]
        rows: list[dict[str, Any]] = [{"prompt_token_ids": ids} for ids in self.ids]
        rows[::10] = [{"prompt": " ".join(f"<{token}>" for token in ids)} for ids in self.ids[::10]]
        self.prompts = folder / "prompts.jsonl"
        self.prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    def command(self, output: Path, *others: str) -> list[str]:
        return [
            *(sys.executable, "-m", "harness", "extract", "--no-gate", "--model", str(self.model)),
            *("--layers", ",".join(map(str, LAYERS)), "--prompts", str(self.prompts), "--output", str(output)),
            *("--tensor-parallel-size", "2", "--dtype", "float32", "--trust-remote-code", *others),
        ]

    def extract(self, output: Path, *others: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """All of it; what it said when it was up, and in the end."""
        done = subprocess.run(self.command(output, *others), check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        said = {line["event"]: line for line in map(json.loads, done.stdout.splitlines())}
        return said["up"], said["done"]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="extraction-") as folder:
        yield Place(Path(folder), SAMPLES)


@pytest.fixture
def many() -> Iterator[Place]:
    """As many as take about as long as a boot, one a forward."""
    with tempfile.TemporaryDirectory(prefix="extraction-") as folder:
        yield Place(Path(folder), 5 * SAMPLES)


@pytest.fixture(scope="module")
def connector(place: Place) -> Path:
    output = place.folder / "connector"
    place.extract(output)
    return output


def _load(path: Path) -> dict[str, Any]:
    """A file of the connector's layout, read by vLLM's own reader where the release has one."""
    if importlib.util.find_spec(READER.rpartition(".")[0]) and importlib.util.find_spec(READER):
        module = importlib.import_module(READER)
        if hasattr(module, "load_hidden_states"):
            return dict(module.load_hidden_states(str(path)))
    from safetensors.torch import load_file

    return dict(load_file(path))


def test_connector_layout_holds_what_hugging_face_computes(place: Place, connector: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = reference.text_checkpoint(place.model, Path(folder))
        states = reference.layer_states(text, place.ids)
    samples = []
    for index in range(SAMPLES):
        held = _load(connector / f"{index}.safetensors")
        layers = {layer: held["hidden_states"][:, place_].contiguous() for place_, layer in enumerate(LAYERS)}
        samples.append(Sample(token_ids=held["token_ids"].tolist(), states=layers))
    expected = {f"all.{number}.{part}": rows for number, parts in enumerate(states) for part, rows in parts.items()}
    agreement.agree(
        Judged(EngineSpec(model=str(place.model), layers=LAYERS)),
        samples,
        place.ids,
        expected,
        "all",
        cause="extraction",
        advice="see the states",
    )


class Submitted:
    """A run that only notes what is submitted to it."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []

    def begins(self, index: int, token_ids: bytes) -> None: ...

    def submit(self, index: int, start: int, count: int, copy: Any) -> None:
        self.rows.append((index, start, count))


@pytest.mark.parametrize("fails", [False, True], ids=["sound", "no-memory"])
def test_rows_that_could_not_be_looked_at_are_not_copied(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    import torch

    from harness.extraction.layouts import Form
    from harness.extraction.staging import Memory, Staging
    from harness.extraction.taps import Taps

    layer = torch.nn.Identity()
    runner: Any = SimpleNamespace(
        model=SimpleNamespace(layers=[layer]),
        input_batch=SimpleNamespace(req_ids=["extract-1-0"]),
        execute_model=lambda _scheduled: layer(torch.ones(3, 8)),
    )
    form = Form(layers=1, hidden_size=8, dtype="float32")
    taps = Taps(runner, (0,), Staging(tokens=16, form=form, device=torch.device("cpu")))
    run: Any = Submitted()
    taps.attach(1, run, Memory(4096, cuda=False), (0, 1))
    request = SimpleNamespace(req_id="extract-1-0", num_computed_tokens=0, prompt_token_ids=[5, 6, 7])
    batch = SimpleNamespace(
        total_num_scheduled_tokens=3,
        num_scheduled_tokens={"extract-1-0": 3},
        scheduled_new_reqs=[request],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[]),
        finished_req_ids=[],
    )
    if fails:

        def take(_staging: Staging, _rows: int) -> None:
            raise torch.OutOfMemoryError("no memory left")

        monkeypatch.setattr(Staging, "take", take)
    with pytest.raises(torch.OutOfMemoryError) if fails else contextlib.nullcontext():
        runner.execute_model(batch)
    taps.flush()
    assert run.rows == ([] if fails else [(0, 0, 3)])


def test_speculators_layout_is_read_by_speculators(place: Place, connector: Path) -> None:
    from harness.clients import speculators_patches

    speculators_patches.name_torch()  # Without it, it cannot be imported beside transformers 5.
    from speculators.train.data import Eagle3SampleFileDataset

    output = place.folder / "speculators"
    place.extract(output, "--layout", "speculators")
    files = [str(output / f"data_{index}.pt") for index in range(SAMPLES)]
    found = Eagle3SampleFileDataset(max_len=LONGEST, datapath=str(output))
    assert sorted(found.data, key=str) == sorted(map(Path, files))
    read = Eagle3SampleFileDataset(max_len=LONGEST, file_list=files)
    for index, ids in enumerate(place.ids):
        sample, states = read[index], _load(connector / f"{index}.safetensors")["hidden_states"]
        # As `shift_batch` leaves them: the first token, and the states after the last, are dropped.
        assert sample["input_ids"].tolist() == ids[1:]
        assert sample["loss_mask"].tolist() == [1] * (len(ids) - 1)
        assert difference(sample["hidden_states"], states[:-1, :-1].flatten(1)).within(TOLERANCE)
        assert difference(sample["verifier_last_hidden_states"], states[1:, -1]).within(TOLERANCE)


class Running:
    """The command, in the background, and how to end it."""

    def __init__(self, command: list[str], output: Path) -> None:
        self.output = output
        self._before = set(SHARED.iterdir())
        self._there = _lines(output / "samples.jsonl")
        self._run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def sleep(self, seconds: float) -> None:
        """Wait, but not beyond its end."""
        deadline = time.monotonic() + seconds
        while self._run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)

    def wait_delivered(self, samples: int) -> None:
        """Wait until it has delivered so many."""
        noted = self.output / "samples.jsonl"
        while self._run.poll() is None and _lines(noted) < self._there + samples:
            time.sleep(0.01)

    def workers(self) -> list[int]:
        """What ranks say of themselves in the engine's log."""
        log = (self.output / LOGS / "engine.stderr.log").read_text(encoding="utf-8", errors="replace")
        return [int(pid) for pid in re.findall(r"harness rank \d+ pid (\d+)", log)]

    def host(self) -> int | None:
        """The process that hosts the engine, if it has come to it."""
        marks = list(self.output.glob(f"{LOGS}/*.pid"))
        return int(marks[0].stem) if marks else None

    def kill(self) -> None:
        """Kill the command alone; what it had started goes, and its shared memory, in bounded time."""
        host = self.host()
        self._run.kill()
        code, said = self.ended()
        assert code == -signal.SIGKILL, f"it had ended before: {said}"
        deadline = time.monotonic() + 30.0
        while (left := self._left(host)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == [], "killed, and this is still there"

    def _left(self, host: int | None) -> list[Any]:
        running: list[Any] = [] if host is None else processes.of_session(host)
        return running + sorted(set(SHARED.iterdir()) - self._before)

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it said."""
        said, _ = self._run.communicate(timeout=120)
        return self._run.returncode, said

    def interrupt(self) -> None:
        self._run.send_signal(signal.SIGINT)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _digests(output: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in output.glob("*.safetensors")}


def test_ended_in_every_way_it_goes_on_and_equals_an_undisturbed_run(many: Place) -> None:
    output = many.folder / "undisturbed"
    up, done = many.extract(output, *ALONE)
    undisturbed = _digests(output)
    assert len(undisturbed) == len(many.ids)
    output = many.folder / "disturbed"
    command = many.command(output, *ALONE)

    run = Running(command, output)
    run.wait_delivered(10)
    run.interrupt()
    code, said = run.ended()
    assert code == INTERRUPTED, said
    assert "the same command goes on from there" in said

    run = Running(command, output)
    run.wait_delivered(10)
    worker = run.workers()[-1]
    os.kill(worker, signal.SIGKILL)
    code, said = run.ended()
    assert code == FINDINGS, said
    assert f"{worker}" in said, said

    chance = random.Random(1)  # noqa: S311 - points in time, not secrets.
    # At each of these numbers of new samples, or within a boot.
    points = [chance.choice([None, chance.randint(1, len(many.ids) // (2 * KILLS))]) for _ in range(KILLS)]
    kept = []
    for point in points:
        run = Running(command, output)
        if point is not None:
            run.wait_delivered(point)
        run.sleep(chance.uniform(0.0, up["seconds"] if point is None else 0.3))
        run.kill()
        kept.append(_lines(output / "samples.jsonl"))
        assert _digests(output).items() <= undisturbed.items()
    print(f"booted in {up['seconds']} s, extracted in {done['seconds']} s; kills at {points}, samples then {kept}")
    many.extract(output, *ALONE)
    assert _digests(output) == undisturbed
    rows = [json.loads(line) for line in (output / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted(row["index"] for row in rows) == list(range(len(many.ids)))
    assert [path.name for path in output.iterdir() if ".partial" in path.name or path.name == LOGS] == []


# In a mount namespace of its own: a file system that is full before the end, and then has room for the rest. Some ten
# seconds go by until it is: what is delivered is noted after two.
_FULL = """
set -u
mount -t tmpfs -o size=30m none "$0" || exit 99
"$@"; first=$?
mount -o remount,size=128m "$0"
find "$0" -name '*.partial'
"$@" && exit "$first"
"""


def test_full_disk_is_an_error_and_with_room_it_goes_on(many: Place) -> None:
    output = many.folder / "full"
    output.mkdir()
    done = subprocess.run(
        [
            "/usr/bin/unshare",
            "--map-root-user",
            "--mount",
            "/bin/sh",
            "-c",
            _FULL,
            str(output),
            *many.command(output, *ALONE),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == DeliveryError.exit_code, done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert "the same command goes on from there" in done.stderr
    assert ".partial" not in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["complete"] is True


def test_folder_that_cannot_be_written_is_an_error(place: Place) -> None:
    done = subprocess.run(place.command(Path("/proc/1/out")), check=False, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "samples cannot be written to /proc/1/out" in done.stderr
