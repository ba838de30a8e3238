from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from harness.extraction import display

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time, from 100 s on."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def set_to(seconds: float) -> None:
        now[0] = 100.0 + seconds

    return set_to


def _deliver(meter: display.Meter, tokens: int) -> None:
    meter.add(samples=1, tokens=tokens, size=2 * tokens, stalled=0.25)


def test_meter_counts_and_tells_the_rate_and_the_end(clock: Callable[[float], None]) -> None:
    meter = display.Meter(samples=4, tokens=400)
    assert meter.facts()["eta_seconds"] is None
    clock(50)
    meter.start()
    clock(60)
    _deliver(meter, 100)
    assert meter.facts() == {
        "samples": 1,
        "tokens": 100,
        "bytes": 200,
        "of_samples": 4,
        "of_tokens": 400,
        "tokens_per_second": 10.0,
        "stalled_seconds": 0.25,
        "seconds": 10.0,
        "eta_seconds": 30,
    }
    assert display.figures(meter) == "10 tok/s, 0.0 MiB, stalled 0.2 s, ETA 0:00:30"
    assert display.summary(meter) == "1 samples, 100 tokens, 0.0 MiB, stalled 0.2 s in 0:00:10: 10 tok/s"


def test_rate_is_that_of_late(clock: Callable[[float], None]) -> None:
    meter = display.Meter(samples=100, tokens=10_000)
    for second in range(1, 61):
        clock(second)
        _deliver(meter, 10 if second <= 30 else 100)
    assert meter.rate == pytest.approx(100.0)
    assert display.summary(meter).endswith("in 0:01:00: 55 tok/s")


def test_rate_after_a_long_pause(clock: Callable[[float], None]) -> None:
    meter = display.Meter(samples=2, tokens=200)
    clock(100)
    _deliver(meter, 100)
    assert meter.rate == pytest.approx(1.0)


def test_lines_are_json_and_not_many(clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]) -> None:
    meter = display.Meter(samples=4, tokens=400)
    with display.Lines() as lines:
        lines.say("up", "it is up", seconds=3.5)
        for tenths in range(110):
            clock(tenths / 10)
            lines.progress(meter)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0] == {"event": "up", "seconds": 3.5, "text": "it is up"}
    assert [line["event"] for line in said[1:]] == ["progress", "progress"]
    assert said[1]["of_samples"] == 4


def test_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, highlight=False)
    monkeypatch.setattr("rich.console.Console", lambda **_named: console)
    meter = display.Meter(samples=4, tokens=400)
    with display.Live() as live:
        live.say("up", "it is [up]", seconds=3.5)
        _deliver(meter, 100)
        live.progress(meter)
    assert "it is [up]" in shown.getvalue()
    assert "1/4 samples" in shown.getvalue()
    assert "tok/s" in shown.getvalue()


def test_what_fits_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(display.display(as_json=False), display.Lines), "a test has no terminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert isinstance(display.display(as_json=False), display.Live)
    assert isinstance(display.display(as_json=True), display.Lines)


def test_duration() -> None:
    assert [display.duration(seconds) for seconds in (0, 59.6, 3725)] == ["0:00:00", "0:01:00", "1:02:05"]
