"""What the benchmark says of its rounds, and that a way that fails does not stop the others."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree as ET

import pytest

from bench import engines, extraction, figures, plot, suite_cost, written
from bench.rounds import Lane, Race
from bench.shapes import SHAPES, Device
from bench.ways import WAYS, Plan, Way
from harness import releases
from harness.clients.contract import check_spec
from harness.errors import ClientError, EnvironmentUnusableError, IncompleteSampleError, ReplyTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.remote import RemoteEngine

DEVICES: list[Device] = list(SHAPES)
ALIAS = "vllm==0.0.0"


def _measured(**medians: float) -> dict[str, dict[str, Any]]:
    return {
        name: {"title": name, "tokens_per_second": [median], "min": median, "median": median, "max": 2 * median}
        for name, median in medians.items()
    }


def _write_sample(path: Path, shape: Sequence[int], *, cut: int = 0) -> None:
    size = 4
    for length in shape:
        size *= length
    header = json.dumps({"hidden_states": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(size)
    path.write_bytes(whole[: len(whole) - cut])


def test_a_summary_is_of_every_round() -> None:
    assert figures.summary(100, [1.0, 0.5, 2.0, 4.0]) == {
        "tokens_per_second": [100.0, 200.0, 50.0, 25.0],
        "min": 25.0,
        "median": 75.0,
        "max": 200.0,
    }


def test_ratios_are_over_what_was_measured_only() -> None:
    ways = {**_measured(plain=200.0, extract=150.0, reply=10.0), "connector": {"tokens_per_second": []}}
    assert figures.ratios(ways) == {"extract/plain": 0.75, "extract/reply": 15.0}
    assert figures.ratios(_measured(plain=200.0)) == {}


def test_the_table_says_which_way_failed() -> None:
    ways = {**_measured(plain=2000.0), "connector": {"title": "theirs", "tokens_per_second": [], "error": "died"}}
    rows = [line.split() for line in figures.table(ways)]
    assert rows[1:] == [["plain", "plain", "2,000", "2,000", "4,000", "1"], ["connector", "theirs", *"---", "failed"]]


def test_bars_are_as_long_as_the_medians() -> None:
    drawn = ET.fromstring(plot.svg("a < b", _measured(plain=200.0, extract=50.0)))  # noqa: S314 - ours.
    bars = [float(rect.attrib["width"]) for rect in drawn.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert bars[0] == pytest.approx(4 * bars[1], rel=0.01)


def test_a_plot_of_nothing_is_still_one() -> None:
    assert ET.fromstring(plot.svg("nothing", {"plain": {"title": "", "tokens_per_second": []}})).tag  # noqa: S314


def test_a_folder_of_whole_samples_passes(tmp_path: Path) -> None:
    for number in range(2):
        _write_sample(tmp_path / f"{number}.safetensors", [3, 2, 4])
    assert written.check(tmp_path, 2, (3, 2, 4)) == sum(path.stat().st_size for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shape", "cut", "count", "said"),
    [
        ([3, 2, 4], 0, 2, "1 files were written for 2 prompts"),
        ([3, 2, 4], 0, 0, "1 files were written for 0 prompts"),
        ([3, 2, 4], 1, 1, "0.safetensors holds states None"),
        ([3, 2, 4], 97, 1, "0.safetensors holds states None"),
        ([3, 2, 4], 10_000, 1, "0.safetensors holds states None"),
        ([3, 1, 4], 0, 1, r"0.safetensors holds states \[3, 1, 4\] instead of \[3, 2, 4\]"),
    ],
)
def test_a_round_that_left_anything_out_does_not_count(
    shape: list[int], cut: int, count: int, said: str, tmp_path: Path
) -> None:
    _write_sample(tmp_path / "0.safetensors", shape, cut=cut)
    with pytest.raises(IncompleteSampleError, match=said):
        written.check(tmp_path, count, (3, 2, 4))


def test_a_file_that_stays_cut_is_not_waited_for_for_good(tmp_path: Path) -> None:
    _write_sample(tmp_path / "0.safetensors", [1, 1, 1], cut=1)
    with pytest.raises(ReplyTimeoutError, match=r"0\.safetensors is not whole"):
        written.wait_whole(tmp_path / "0.safetensors", time.monotonic())


@pytest.mark.parametrize("device", DEVICES)
def test_no_way_is_asked_for_what_another_one_loses(device: Device) -> None:
    shape = SHAPES[device]
    assert max(shape.layers) < shape.config["num_hidden_layers"] - 1
    assert shape.tokens <= shape.budget
    assert shape.tokens < shape.config["max_position_embeddings"]


def test_every_way_has_a_name_and_an_engine_of_its_own() -> None:
    assert len({way.name for way in WAYS}) == len(WAYS)
    assert [way.name for way in WAYS if not hasattr(engines, way.engine)] == []
    assert {figures.OURS, *figures.BASELINES} <= {way.name for way in WAYS}


def _plan(device: Device = "cpu") -> Plan:
    return Plan(device=device, shape=SHAPES[device], tensor_parallel_size=1, prompts=3, tokens=5, timeout=1.0)


def test_the_wide_model_is_a_config_alone(tmp_path: Path) -> None:
    SHAPES["cuda"].write(tmp_path / "model", 2)
    for way in WAYS:
        check_spec(_plan("cuda").spec(way, tmp_path / "model", tmp_path))
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["config.json"]


class FakeEngine:
    """Takes a second a prompt by its own account, and writes what it is told to."""

    def __init__(self, *, fails_at: int = 0, writes: bool = False, interrupted: bool = False) -> None:
        self.timings = {"open": 1.0}
        self.calls = 0
        self.closed = False
        self._fails_at = fails_at
        self._writes = writes
        self._interrupted = interrupted

    def open(self, timeout: float) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def call(self, method: str, prompts: list[list[int]], folder: str, **_how: Any) -> dict[str, float]:
        self.calls += 1
        if self.calls == self._fails_at:
            raise ClientError("a worker ended")
        for number, prompt in enumerate(prompts if self._writes else []):
            shape = [len(prompt), len(SHAPES["cpu"].layers), SHAPES["cpu"].hidden_size]
            _write_sample(Path(folder) / f"{number}.safetensors", shape)
        return {"seconds": float(len(prompts))}

    def tail(self, lines: int) -> str:
        return "its last words"

    def close(self) -> None:
        self.closed = True

    end = close


def _race(
    tmp_path: Path, *entrants: tuple[Way, FakeEngine], parts: dict[str, int] | None = None
) -> tuple[Race, list[str]]:
    plan = replace(_plan(), shape=replace(SHAPES["cpu"], parts=parts or {}))
    said: list[str] = []
    lanes = []
    for way, engine in entrants:
        folder = tmp_path / way.name
        folder.mkdir()
        lanes.append(Lane(way, cast("RemoteEngine", engine), folder))
    return Race(plan, lanes, [[1] * 5] * 3, said.append), said


def _way(name: str, *, writes: bool = False) -> Way:
    return Way(name=name, title=name, engine=name, writes=writes)


def test_a_way_that_fails_is_out_and_the_others_go_on(tmp_path: Path) -> None:
    shared = FakeEngine(fails_at=3)
    race, said = _race(tmp_path, (_way("a"), shared), (_way("b"), FakeEngine()), (_way("c"), shared))
    race.boot()
    for _round in race.run(2, patience=100.0, deadline=time.monotonic() + 100.0):
        pass
    errors = {lane.way.name: lane.error for lane in race.lanes}
    assert errors == {"a": "ClientError: a worker ended", "b": "", "c": "ClientError: a worker ended"}
    assert [lane.seconds for lane in race.lanes] == [[3.0], [3.0, 3.0], []]
    assert shared.closed
    assert any("its last words" in line for line in said)


def test_an_interrupted_boot_ends_every_engine(tmp_path: Path) -> None:
    entrants = [(_way("a"), FakeEngine(interrupted=True)), (_way("b"), FakeEngine())]
    race, _said = _race(tmp_path, *entrants)
    with pytest.raises(KeyboardInterrupt):
        race.boot()
    assert [engine.closed for _entrant, engine in entrants] == [True, True]


def test_a_round_whose_files_are_missing_is_a_failure(tmp_path: Path) -> None:
    race, _said = _race(
        tmp_path, (_way("a", writes=True), FakeEngine()), (_way("b", writes=True), FakeEngine(writes=True))
    )
    race.warm_up()
    assert [lane.error.partition(":")[0] for lane in race.lanes] == ["IncompleteSampleError", ""]
    assert list((tmp_path / "b").iterdir()) == []


def test_slow_ways_get_fewer_rounds_and_none_begins_late(tmp_path: Path) -> None:
    race, _said = _race(tmp_path, (_way("a"), FakeEngine()))
    for _round in race.run(9, patience=5.0, deadline=time.monotonic() + 100.0):
        pass
    assert race.lanes[0].seconds == [3.0, 3.0]
    for _round in race.run(9, patience=100.0, deadline=time.monotonic()):
        pass
    assert len(race.lanes[0].seconds) == 2


def test_a_slow_way_is_reckoned_by_the_part_that_it_got(tmp_path: Path) -> None:
    race, said = _race(tmp_path, (_way("a"), FakeEngine()), parts={"a": 3})
    for _round in race.run(1, patience=5.0, deadline=time.monotonic() + 100.0):
        pass
    facts = race.lanes[0].facts(replace(_plan(), shape=replace(SHAPES["cpu"], parts={"a": 3})))
    assert (facts["tokens_a_round"], facts["median"]) == (5, 5.0), said


@pytest.mark.parametrize("main", [extraction.main, suite_cost.main])
@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["--nothing"], 2)])
def test_every_benchmark_says_how_it_is_called(
    main: Callable[[], object],
    arguments: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert f"usage: python -m {main.__module__}" in "".join(capsys.readouterr())


@pytest.mark.parametrize("arguments", [[], ["0.33.0"], ["9.9"]])
def test_cost_is_measured_of_a_release_with_a_build(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        suite_cost.main(arguments)
    assert ended.value.code == 2
    assert "RELEASE" in capsys.readouterr().err


def test_environment_that_cannot_be_made_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ensure(*_what: Any, **_how: Any) -> None:
        raise EnvironmentUnusableError("no disk left")

    monkeypatch.setattr("harness.environments.ensure", ensure)
    assert suite_cost.main(["0.16.0"]) == EnvironmentUnusableError.exit_code
    assert capsys.readouterr().err == "python -m bench.suite_cost: no disk left\n"


@pytest.mark.parametrize(("device", "left"), [("cpu", ["torch==2.10.0"]), ("cuda", ["torch==2.10.0", ALIAS])])
def test_what_a_wheel_claims_to_be_beside_itself_is_not_installed(device: Device, left: list[str]) -> None:
    build = releases.find("0.16.0").build(device)
    frozen = f"torch==2.10.0\n{ALIAS}\n"
    assert suite_cost.without_alias(frozen, build).split() == left, build.distribution
