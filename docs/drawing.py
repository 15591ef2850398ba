"""How the project's pictures look, and how matplotlib writes them: as SVG, with the same bytes every time."""

from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PADDING, DARK = "#e8e8e8", "#333333"

mpl.rcParams.update(
    {
        "font.family": "DejaVu Sans",  # matplotlib brings it along, so that text is as wide on every machine
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#999999",
        "axes.xmargin": 0,
        "axes.ymargin": 0,
        "svg.fonttype": "none",
        "svg.hashsalt": "tokmill",
    }
)


def percentages(axes: Axes) -> None:
    """Have the vertical axis go from nothing to everything."""
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])


def svg(figure: Figure) -> str:
    """Return a picture's file, without the date and matplotlib's version."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def write(pictures: Mapping[str, Callable[[], Figure]], folder: Path) -> None:
    """Write pictures into a folder, by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures.items():
        (folder / name).write_text(svg(draw()), encoding="utf-8")
