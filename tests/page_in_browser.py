"""The report's page in a real browser: run by ``nox -s report_page``, as no browser belongs to the tests' needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import browser
import pytest
import records

from harness import sources
from harness.report import gather, steps
from harness.report.page import page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTHS = (1440, 1024, 768, 390, 320)
OPEN_ALL = "for (const each of document.querySelectorAll('details')) each.open = true"
# What shows but is cut off or sticks out; what is cut on purpose says so with an ellipsis.
STICKING_OUT = """[...document.querySelectorAll('main *')].filter(each => {
    const box = each.getBoundingClientRect();
    return box.width && box.right > document.documentElement.clientWidth + 1;
}).map(each => each.className + ' ' + each.textContent.trim().slice(0, 60))"""
# WCAG's contrast of every text with what is painted behind it.
FAINT = """(() => {
    const channels = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = colour => channels(colour).slice(0, 3).map(value => value / 255)
        .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
    const painted = colour => channels(colour)[3] !== 0;
    const faint = [];
    for (const each of document.querySelectorAll('body *')) {
        const own = [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!own || !each.getBoundingClientRect().width || each.closest('style')) continue;
        let behind = each;
        while (behind && !painted(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
        const ground = getComputedStyle(behind ?? document.body).backgroundColor;
        const pair = [getComputedStyle(each).color, ground].map(light);
        const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        const text = each.textContent.trim().slice(0, 40);
        if (contrast < 4.5) faint.push(`${each.className}: ${contrast.toFixed(2)}: ${text}`);
    }
    return [...new Set(faint)];
})()"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Tab]:
    chromium = browser.find()
    if chromium is None:
        pytest.fail("no Chromium was found. Install one (Debian: apt-get install chromium).")
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("HARNESS_CACHE", str(folder / "cache"))
        table = gather.gather(records.every_kind(folder))
        text = page(table, steps.steps(table, sources.suite() / "snapshots"))
    (folder / "page.html").write_text(text, encoding="utf-8")
    with browser.tab(chromium, folder / "page.html", folder / "profile") as opened:
        yield opened


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_nothing_is_complained_about_or_loaded(tab: browser.Tab) -> None:
    assert tab.complaints == []
    assert [url.partition(":")[0] for url in tab.requests] == ["file"], tab.requests


def test_nothing_of_the_evidence_ran(tab: browser.Tab) -> None:
    assert tab.value("document.title") == "vLLM capture conformance"
    assert tab.value("document.querySelectorAll('script, img, iframe, object').length") == 0


def test_a_line_opens_without_a_script(tab: browser.Tab) -> None:
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    tab.look(width=1280, scheme="light")
    x, y = tab.value(
        "(box => [box.x + 20, box.y + box.height / 2])"
        "(document.querySelector('.row.findings > summary').getBoundingClientRect())"
    )
    for kind in ("mousePressed", "mouseReleased"):
        tab.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert tab.value("document.querySelector('.row.findings').open") is True
    assert tab.value("document.querySelector('.row.findings .finding').getBoundingClientRect().height > 0") is True
    tab.ask("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_sticks_out(tab: browser.Tab, width: int) -> None:
    tab.value(OPEN_ALL)
    tab.look(width=width, scheme="light")
    assert tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert tab.value(STICKING_OUT) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_every_text_can_be_read(tab: browser.Tab, scheme: str, width: int, tmp_path: Path) -> None:
    tab.value(OPEN_ALL)
    tab.look(width=width, scheme=scheme)
    tab.picture(tmp_path / f"{scheme}-{width}.png")
    faint = tab.value(FAINT)
    assert not faint, "\n".join([*faint, f"picture: {tmp_path}"])
