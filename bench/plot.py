"""The medians as horizontal bars, in an SVG that needs no library: whiskers from the least round to the most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 860, 250, 90, 34, 44
_COLOURS = {"plain": "#8a8f98", "extract": "#1f7a4d"}
_OTHER = "#b8643a"


def svg(title: str, ways: Mapping[str, Mapping[str, Any]]) -> str:
    """A bar a way that has a median, in their order."""
    shown = {name: way for name, way in ways.items() if "median" in way}
    most = max((way["max"] for way in shown.values()), default=1.0)
    height = _TOP + _ROW * len(shown) + 14
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}">',
        "<style>text { font: 13px sans-serif }</style>",
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" style="font-weight: bold">{escape(title)}</text>',
    ]
    for number, (name, way) in enumerate(shown.items()):
        lines += _bar(_TOP + _ROW * number, name, way, (_WIDTH - _LEFT - _RIGHT) / most)
    return "\n".join([*lines, "</svg>", ""])


def _bar(top: int, name: str, way: Mapping[str, Any], scale: float) -> list[str]:
    middle = top + _ROW // 2
    start, median, stop = (_LEFT + way[key] * scale for key in ("min", "median", "max"))
    whisker = f"M{start:.1f} {middle}H{stop:.1f}M{start:.1f} {middle - 5}v10M{stop:.1f} {middle - 5}v10"
    colour = _COLOURS.get(name.partition("-")[0], _OTHER)
    return [
        f'<text x="{_LEFT - 10}" y="{middle + 4}" text-anchor="end">{escape(way["title"])}</text>',
        f'<rect x="{_LEFT}" y="{top + 7}" width="{median - _LEFT:.1f}" height="{_ROW - 14}" fill="{colour}"/>',
        f'<path d="{whisker}" stroke="#22262c" fill="none"/>',
        f'<text x="{stop + 8:.1f}" y="{middle + 4}">{way["median"]:,.0f}</text>',
    ]
