"""Plots of the figures: readable in print, on a screen, and without telling colours apart."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from side_by_side.names import OURS
from side_by_side.outcomes import Outcome

T = TypeVar("T")

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; shapes differ as well
_LOOKS = {
    "tokmill": ("#D55E00", "o"),
    "tokmill from str": ("#E69F00", "o"),
    "gigatoken": ("#0072B2", "s"),
    "fastokens": ("#009E73", "D"),
    "quicktok-v1": ("#CC79A7", "^"),
    "tiktoken": ("#56B4E9", "v"),
    "tokenizers": ("#000000", "P"),
    "regex": ("#0072B2", "s"),
}
_OTHERS = ("#666666", "X")
_INK, _FAINT, _BAND, _OURS, _PEER = "#222222", "#DDDDDD", "#F6F6F6", "#D55E00", "#9AA5B1"

mpl.rcParams.update(
    {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "svg.hashsalt": "tokmill",
        "svg.fonttype": "none",
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "text.color": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
)


def speeds(outcomes: Sequence[Outcome], phases: Sequence[str], done: str) -> Figure | None:
    """Draw a panel for each vocabulary or pattern: texts from top to bottom, speed from left to right.

    The first phase is filled, a second one open. What does not count is not drawn; None if nothing does.
    """
    if not any(outcome.counts for outcome in outcomes):
        return None
    fewest = min(outcome.case.num_threads for outcome in outcomes)
    shown = [outcome for outcome in outcomes if outcome.counts and outcome.case.num_threads == fewest]
    works, names = _in_order(each.case.work for each in shown), _in_order(each.case.text for each in shown)
    height = len(names) * (0.16 + 0.1 * len(_in_order(each.side for each in shown))) + 1.6
    figure = Figure(figsize=(3.2 * len(works) + 1.4, height), layout="constrained")
    panels = figure.subplots(1, len(works), sharex=True, sharey=True, squeeze=False)[0]
    for panel, work in zip(panels, works, strict=True):
        _speed_panel(panel, [each for each in shown if each.case.work == work], names, phases)
        panel.set_title(work, fontweight="bold", loc="left")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    said = f"megabytes {done} a second of CPU time, {_threads(fewest)} (logarithmic)"
    if len(phases) > 1:
        said += f"\nfilled: {phases[0]} (first sight of the text)    open: {phases[1]} (the same text again)"
    figure.supxlabel(said, fontsize=9)
    _legend(figure, panels[0], _in_order(each.side for each in shown))
    return figure


def trainings(outcomes: Sequence[Outcome]) -> Figure:
    """Draw, for each text and number of threads, bars of CPU time and of peak memory."""
    cases = _in_order(outcome.case for outcome in outcomes)
    rows = max(len(_in_order(outcome.side for outcome in outcomes)), 1)
    figure = Figure(figsize=(8.4, len(cases) * (0.3 * rows + 0.7) + 0.3), layout="constrained")
    panels = figure.subplots(len(cases), 2, squeeze=False)
    for (times, sizes), case in zip(panels, cases, strict=True):
        found = [outcome for outcome in outcomes if outcome.case == case and outcome.seconds]
        title = f"{case.text}, {case.num_bytes / 1e6:.0f} MB, {_threads(case.num_threads)}"
        _bars(times, found, [outcome.median("train") or 0.0 for outcome in found], _seconds)
        _bars(sizes, found, [outcome.peak_bytes / (1 << 20) for outcome in found], "{:,.0f} MiB".format)
        times.set_title(f"{title}: CPU time", fontweight="bold", loc="left", fontsize=9)
        sizes.set_title("peak memory, the text in it", fontweight="bold", loc="left", fontsize=9)
        sizes.set_yticks([])
    return figure


def _speed_panel(
    panel: Any, outcomes: Sequence[Outcome], names: Sequence[str], phases: Sequence[str]
) -> None:
    _speed_axes(panel, len(names))
    sides = _in_order(outcome.side for outcome in outcomes)
    for outcome in sorted(outcomes, key=lambda each: each.side in OURS):  # ours on top
        colour, shape = _LOOKS.get(outcome.side, _OTHERS)
        # sides a little below one another, so that equals do not hide each other
        place = names.index(outcome.case.text) + (sides.index(outcome.side) - (len(sides) - 1) / 2) * 0.11
        points = [(outcome.speed(phase), place) for phase in phases]
        panel.plot(*zip(*points, strict=True), color=colour, linewidth=1, alpha=0.6, zorder=2)
        for number, point in reversed(list(enumerate(points))):
            face = "white" if number else colour
            look = {"marker": shape, "color": colour, "markerfacecolor": face, "markersize": 6}
            panel.plot(*point, **look, linestyle="none", zorder=4 if outcome.side in OURS else 3)


def _speed_axes(panel: Any, rows: int) -> None:
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(axis="x", which="major", color=_FAINT, linewidth=0.8)
    for row in range(0, rows, 2):
        panel.axhspan(row - 0.5, row + 0.5, color=_BAND, zorder=0)
    panel.set_axisbelow(True)
    panel.tick_params(axis="both", which="both", length=0)
    panel.spines[["top", "right", "left"]].set_visible(False)


def _legend(figure: Figure, panel: Any, sides: Sequence[str]) -> None:
    entries: list[Any] = []
    for side in sides:
        colour, shape = _LOOKS.get(side, _OTHERS)
        entries += panel.plot([], [], marker=shape, color=colour, linestyle="none", label=side)
    columns = min(len(entries), 3 * max(len(figure.axes), 1))
    figure.legend(handles=entries, loc="outside upper left", ncols=columns, frameon=False, handletextpad=0.1)


def _bars(
    panel: Any, outcomes: Sequence[Outcome], values: Sequence[float], write: Callable[[float], str]
) -> None:
    colours = [_OURS if outcome.side in OURS else _PEER for outcome in outcomes]
    bars = panel.barh(range(len(values)), values, color=colours, height=0.72)
    for bar, outcome in zip(bars, outcomes, strict=True):
        bar.set_hatch(None if outcome.counts else "////")
    panel.bar_label(bars, [write(value) for value in values], padding=3, fontsize=8.5)
    panel.set_yticks(range(len(values)), [_named(outcome) for outcome in outcomes])
    panel.invert_yaxis()
    panel.set_xlim(0, max(values, default=1) * 1.3)
    panel.set_xticks([])
    panel.tick_params(axis="y", length=0)
    panel.spines[["top", "right", "bottom"]].set_visible(False)


def _named(outcome: Outcome) -> str:
    """Name a side; what does other work, or does not count, says so."""
    if not outcome.counts:
        return f"{outcome.side}\n(wrong)"
    assert outcome.verdict is not None
    return outcome.side if outcome.verdict.same_work else f"{outcome.side}\n(other work)"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def _threads(number: int) -> str:
    return "one thread" if number == 1 else f"{number} threads"


def _in_order(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
