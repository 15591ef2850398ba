"""Charts as PNG, by matplotlib, which draws the guides' pictures, too; left out if it is missing."""

import importlib.util
from pathlib import Path

from tokmill.tasks.audit.report.charts import Bars, Chart
from tokmill.tasks.audit.report.svg import COLOURS
from tokmill.tasks.core.markdown import number

_DASHES = ("-", "--", ":", "-.")


def can_draw() -> bool:
    """Whether matplotlib is installed (`pip install 'tokmill[pictures]'`)."""
    return importlib.util.find_spec("matplotlib") is not None


def write_png(chart: Chart, path: Path) -> None:
    """Draw a chart into a file; only where `can_draw`."""
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
            style = {"color": COLOURS[colour], "linestyle": _DASHES[lap % len(_DASHES)]}
            axes.loglog([x for x, _ in line], [y for _, y in line], label=name, **style)
        for x, y, _ in chart.marks:
            axes.plot([x], [y], marker="o", markersize=7, markerfacecolor="none", markeredgecolor="#1c1c1c")
        axes.set_xlabel(chart.across)
        axes.set_ylabel(chart.up)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def _draw_bars(axes: "object", chart: Bars) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
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
