"""Charts: bars and curves as data, drawn as SVG for a page, whose colours they take, and as PNG.

Numbers are rounded to a tenth of a unit, so that the same chart gives the same bytes.
"""

import importlib.util
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from tokmill.tasks.core.markdown import number

WIDTH = 460
"""The least width; a chart is wider where a text needs more."""
_ROW, _TOP, _BAR, _VALUE = 20, 26, 284, 58
_HEIGHT, _LEFT, _BOTTOM = 280, 52, 40
COLOURS = ("#1f5fa8", "#b3541e", "#1a7f4b", "#8a3f97", "#7a6a00")
_DARK = ("#7db3f0", "#f0a674", "#6fce9b", "#d59be0", "#d8c95a")
_DASHES = ("5 3", "2 2", "8 3 2 3")
NUM_STYLES = len(COLOURS) * (1 + len(_DASHES))
"""Lines that can be told apart."""

STYLE = "\n".join(
    [
        "svg.chart{--ink:#1c1c1c;--faint:#c9c9c9;"
        + "".join(f"--c{i}:{colour};" for i, colour in enumerate(COLOURS))
        + "font:12px system-ui,sans-serif}",
        "@media screen and (prefers-color-scheme:dark){svg.chart{--ink:#ececec;--faint:#4a4a4a;"
        + "".join(f"--c{i}:{colour};" for i, colour in enumerate(_DARK))
        + "}}",
        "svg.chart text{fill:var(--ink)} svg.chart .end{text-anchor:end}",
        "svg.chart .middle{text-anchor:middle}",
        "svg.chart .title{font-weight:600;font-size:13px} svg.chart .grid{stroke:var(--faint)}",
        "svg.chart .bar{fill:var(--c0)} svg.chart .whisker{stroke:var(--ink);stroke-width:1.5}",
        "svg.chart .reference{stroke:var(--c1);stroke-width:1.5;stroke-dasharray:4 3}",
        "svg.chart .line{fill:none;stroke-width:1.8}",
        *(f"svg.chart .k{i}{{stroke:var(--c{i})}}" for i in range(len(COLOURS))),
        *(f"svg.chart .lap{lap}{{stroke-dasharray:{dashes}}}" for lap, dashes in enumerate(_DASHES, start=1)),
        "svg.chart .mark{fill:none;stroke:var(--ink);stroke-width:1.6}",
    ]
)
"""The style that the charts of a page, or a file of one, need."""
_LINE_STYLES = ("-", "--", ":", "-.")


class Bar(NamedTuple):
    """A labelled value, with the ends of its interval if it has one."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


class Bars(NamedTuple):
    """Horizontal bars, the greatest first."""

    name: str  # of the chart's file
    title: str
    unit: str  # what the values are
    bars: tuple[Bar, ...]  # in the order in which they are drawn
    reference: float | None = None  # a value that a line is drawn at


class Curves(NamedTuple):
    """Lines through points, both axes logarithmic."""

    name: str  # of the chart's file
    title: str
    across: str  # what the horizontal axis is
    up: str  # what the vertical axis is
    lines: Mapping[str, Sequence[tuple[float, float]]]  # points by name; all coordinates are above 0
    marks: Sequence[tuple[float, float, str]] = ()  # points that stand out, each with what it is


Chart = Bars | Curves


def write_charts(charts: Sequence[Chart], folder: Path) -> None:
    """Write charts as SVG, and as PNG if matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        (folder / f"{chart.name}.svg").write_text(svg_of(chart, alone=True) + "\n", "utf-8")
        if importlib.util.find_spec("matplotlib"):  # pip install 'tokmill[pictures]'
            _write_png(chart, folder / f"{chart.name}.png")


def svg_of(chart: Chart, *, alone: bool = False) -> str:
    """Return a chart as SVG; `alone` as a file of its own, which brings its style."""
    width, height, parts = _bars(chart) if isinstance(chart, Bars) else _curves(chart)
    width = max(width, _extent(chart.title) + 14)  # titles are bold, and larger
    namespace = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    style = f"<style>{STYLE}</style>" if alone else ""
    head = (
        f'<svg class="chart"{namespace} role="img" viewBox="0 0 {width} {height}" '
        f'aria-label="{escape(chart.title)}">'
    )
    return "".join([head, style, _text(0, 14, chart.title, "title"), *parts, "</svg>"])


def _bars(chart: Bars) -> tuple[int, int, Iterable[str]]:
    labels = max((_extent(bar.label) for bar in chart.bars), default=0) + 12
    left = max(labels, WIDTH - _BAR - _VALUE)
    ends = [bar.high if bar.high is not None else bar.value for bar in chart.bars]
    greatest = max([*ends, chart.reference or 0]) or 1
    scale = _BAR / greatest
    parts = list[str]()
    for place, bar in enumerate(chart.bars):
        y = _TOP + place * _ROW
        parts += [
            _text(left - 6, y + 14, bar.label, "end"),
            f'<rect class="bar" x="{left}" y="{y + 3}" width="{bar.value * scale:.1f}" height="14">'
            f"<title>{escape(bar.label)}: {number(bar.value)} {escape(chart.unit)}</title></rect>",
            _text(left + max(ends[place], bar.value) * scale + 5, y + 14, number(bar.value)),
        ]
        if bar.low is not None and bar.high is not None:
            parts.append(_line(left + bar.low * scale, y + 10, left + bar.high * scale, y + 10, "whisker"))
    bottom = _TOP + len(chart.bars) * _ROW
    if chart.reference is not None:
        x = left + chart.reference * scale
        parts.append(_line(x, _TOP, x, bottom, "reference"))
    parts.append(_text(left, bottom + 16, chart.unit))
    return max(left + _BAR + _VALUE, left + _extent(chart.unit)), bottom + 24, parts


def _curves(chart: Curves) -> tuple[int, int, Iterable[str]]:
    points = [point for line in chart.lines.values() for point in line]
    across = _Scale([x for x, _ in points], _LEFT, WIDTH - 12)
    up = _Scale([y for _, y in points], _HEIGHT - _BOTTOM, _TOP + 6)
    parts = list[str]()
    for tick in across.ticks:
        x = across.at(tick)
        parts += [_line(x, up.first, x, up.last, "grid"), _text(x, up.first + 15, _tick(tick), "middle")]
    for tick in up.ticks:
        y = up.at(tick)
        parts += [_line(across.first, y, across.last, y, "grid"), _text(_LEFT - 5, y + 4, _tick(tick), "end")]
    parts.append(
        _text((across.first + across.last) / 2, _HEIGHT - 6, f"{chart.across} → {chart.up}", "middle")
    )
    for place, (name, line) in enumerate(chart.lines.items()):
        drawn = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in line)
        y, style = _HEIGHT + 14 + place * 18, _style_of(place)
        parts += [
            f'<polyline class="line {style}" points="{drawn}"/>',
            _line(_LEFT, y - 4, _LEFT + 22, y - 4, f"line {style}"),
            _text(_LEFT + 28, y, name),
        ]
    for x, y, text in chart.marks:
        parts.append(
            f'<circle class="mark" cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="5">'
            f"<title>{escape(text)}</title></circle>"
        )
    width = max([WIDTH, *(_LEFT + 28 + _extent(name) for name in chart.lines)])
    return width, _HEIGHT + len(chart.lines) * 18 + 6, parts


def _style_of(place: int) -> str:
    """Return the style of a line: colours in turn, with other dashes each time that all were used."""
    lap, colour = divmod(place % NUM_STYLES, len(COLOURS))
    return f"k{colour}{f' lap{lap}' if lap else ''}"


def _extent(text: str) -> int:
    """Return about how wide a text is drawn; rather too wide than clipped."""
    return sum(13 if unicodedata.east_asian_width(char) in "WF" else 8 for char in text)


class _Scale:
    """A logarithmic axis between two places."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self.first, self.last = first, last
        self._low, high = math.log10(min(values)), math.log10(max(values))
        self._span = high - self._low or 1.0
        self.ticks = _ticks(min(values), max(values))

    def at(self, value: float) -> float:
        return self.first + (math.log10(value) - self._low) / self._span * (self.last - self.first)


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten, or between fewer than two of these 1, 2, 5 times them, or even steps."""
    for factors in ((1.0,), (1.0, 2.0, 5.0)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [factor * 10.0**power for power in powers for factor in factors]
        inside = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(inside) > 1:
            return inside
    if low == high:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    step *= max(1.0, math.floor((high - low) / (4 * step)))
    first = math.ceil(low / step)
    return [round(place * step, 12) for place in range(first, math.floor(high / step) + 1)]


def _tick(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, style: str) -> str:
    return f'<line class="{style}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _write_png(chart: Chart, path: Path) -> None:
    from matplotlib.figure import Figure

    height = 0.9 + 0.22 * len(chart.bars) if isinstance(chart, Bars) else 3.6
    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(chart.title, loc="left", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if isinstance(chart, Bars):
        _draw_bars(axes, chart)
    else:
        for place, (name, line) in enumerate(chart.lines.items()):
            lap, colour = divmod(place, len(COLOURS))
            style = {"color": COLOURS[colour], "linestyle": _LINE_STYLES[lap % len(_LINE_STYLES)]}
            axes.loglog([x for x, _ in line], [y for _, y in line], label=name, **style)
        for x, y, _ in chart.marks:
            axes.plot([x], [y], marker="o", markersize=7, markerfacecolor="none", markeredgecolor="#1c1c1c")
        axes.set_xlabel(chart.across)
        axes.set_ylabel(chart.up)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def _draw_bars(axes: Any, chart: Bars) -> None:
    places = range(len(chart.bars))
    axes.barh(places, [bar.value for bar in chart.bars], color=COLOURS[0], height=0.7)
    axes.set_yticks(places, [bar.label for bar in chart.bars], fontsize=8)
    axes.invert_yaxis()
    for place, bar in enumerate(chart.bars):
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [place, place], color="#1c1c1c", linewidth=1.2)
        end = bar.value if bar.high is None else bar.high
        axes.annotate(
            number(bar.value), (end, place), (3, 0), textcoords="offset points", fontsize=7, va="center"
        )
    if chart.reference is not None:
        axes.axvline(chart.reference, color=COLOURS[1], linestyle="--", linewidth=1.2)
    axes.set_xlabel(chart.unit, fontsize=8)
