"""Draw the pictures of docs/mixing.md, from mixtures of made-up documents that the code plans.

python docs/draw_mixing.py            # writes docs/pictures/mixing-*.svg again
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from drawing import DARK, PADDING, percentages, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import Plan
from tokmill.tasks.mixing.curves import Competence, Curves, Kind
from tokmill.tasks.mixing.lengths import SourceLengths
from tokmill.tasks.mixing.sorting import Scratch
from tokmill.tasks.mixing.stage import MixParams, Planning

COLORS = {"web": "#8db4e2", "code": "#f2bd7c", "papers": "#8cc49b"}
PLACES = 256  # at which lines are drawn
BINS = 120

STEPS = {
    "schedule_unit": "steps",
    "sequence_length": 8,
    "global_batch_size": 1,
    "total_tokens": 8 * 600_000,
    "max_repetition": 30.0,
}
SCHEDULE = [
    (0, {"web": 0.8, "code": 0.2, "papers": 0}),
    (100_000, {"web": 0.6, "code": 0.3, "papers": 0.1}),
    (500_000, {"web": 0.2, "code": 0.4, "papers": 0.4}),
]
RAMPS = {
    "proportions": {"web": 0.6, "code": 0.3, "papers": 0.1},
    "warmup": {"code": {"stop": 100_000}},
    "annealing": {"papers": {"start": 500_000, "stop": 550_000, "factor": 6}},
}
SCHEDULES = {
    'change = "hold"': {"schedule": SCHEDULE, "change": "hold"},
    'change = "linear"': {"schedule": SCHEDULE, "change": "linear"},
    'change = "cosine"': {"schedule": SCHEDULE, "change": "cosine"},
    "warm-up of code, annealing of papers": RAMPS,
}
START, STAIRS = 0.2, 5
KINDS: tuple[Kind, ...] = ("linear", "sqrt", "exp", "step")


def made_up(number: int, most: int) -> NDArray[np.int64]:
    """The lengths of documents, from 20 tokens on; the same on every machine."""
    k = np.arange(number, dtype=np.int64)
    return 20 + (k * k * 7919 + k * 104_729) % (most - 20)


def planned(corpus: Mapping[str, NDArray[np.int64]], **params: Any) -> tuple[Plan, Curves]:
    """Plan a mixture; returns it, and what was asked of it."""
    sources = {name: SourceLengths.of_arrays([lengths]) for name, lengths in corpus.items()}
    with TemporaryDirectory() as folder:
        planning = Planning.of(MixParams(**params), sources, Scratch(Path(folder)))
        return Plan.joined(list(planning.blocks())), planning.settled.curves


def given(plan: Plan, num_sources: int) -> NDArray[np.float64]:
    """Each source's part of the tokens in equal stretches of a plan: float64 [BINS, sources]."""
    ends = np.cumsum(plan.num_tokens, dtype=np.int64)
    stretch = np.minimum((ends - plan.num_tokens) * BINS // ends[-1], BINS - 1)
    tokens = np.zeros((BINS, num_sources))
    np.add.at(tokens, (stretch, plan.source), plan.num_tokens)
    return tokens / tokens.sum(axis=1, keepdims=True)


def asked(curves: Curves) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is asked of each source: places in the run, two where shares jump, and the shares there."""
    places, shares = [], []
    for interval in curves.intervals:
        places += [float(interval.start / curves.end), float(interval.stop / curves.end)]
        shares += [list(map(float, interval.first)), list(map(float, interval.last))]
    return np.array(places), np.array(shares)


def shares_panel(axes: Axes, title: str, params: Mapping[str, Any]) -> None:
    """Draw what a plan gives as areas, and what was asked of it as lines."""
    plan, curves = planned({name: made_up(4000, 400) for name in COLORS}, **STEPS, **params)
    shares = given(plan, len(COLORS))
    edges = np.arange(BINS + 1) / BINS
    axes.stackplot(edges, np.vstack([shares, shares[-1:]]).T, step="post", colors=COLORS.values())
    places, wanted = asked(curves)
    axes.plot(places, np.cumsum(wanted, axis=1)[:, :-1], color=DARK, linewidth=0.9)
    axes.set_title(title)
    axes.set_xticks([0, 1 / 6, 5 / 6, 1], ["0", "100,000", "500,000", "600,000"])
    percentages(axes)


def schedule_picture() -> Figure:
    """Draw the shares of three sources over a run, by each kind of change."""
    figure = Figure(figsize=(7.7, 4.7), layout="constrained")
    for axes, (title, params) in zip(figure.subplots(2, 2).flat, SCHEDULES.items(), strict=True):
        shares_panel(axes, title, params)
    legend = [Patch(color=fill, label=name) for name, fill in COLORS.items()]
    title = "areas: what the plan gives; lines: what was asked; below: steps"
    figure.legend(handles=legend, title=title, ncols=len(COLORS), loc="outside lower left", frameon=False)
    return figure


def difficulties(plan: Plan, lengths: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each document of a plan when it comes, and which part of all tokens is in shorter ones."""
    shorter = np.concatenate([[0], np.cumsum(np.sort(lengths))])
    ends = np.cumsum(plan.num_tokens, dtype=np.int64)
    before = shorter[np.searchsorted(np.sort(lengths), plan.num_tokens)]
    return (ends - plan.num_tokens) / ends[-1], before / lengths.sum()


def eligible(function: Competence) -> Iterator[tuple[float, float]]:
    """Yield the points of a competence function's graph, two where it jumps."""
    places = np.arange(PLACES + 1) / PLACES
    for place, *values in zip(
        places, function.eligible(places, before=True), function.eligible(places), strict=True
    ):
        yield from ((place, value) for value in (values if place else values[1:]))


def curriculum_panel(axes: Axes, title: str, kind: Kind | None, params: Mapping[str, Any]) -> None:
    """Draw every document of a plan as a dot, and the competence function, if there is one, as a line."""
    lengths = made_up(250, 4000)
    plan, _ = planned({"web": lengths}, **params)
    if kind is not None:
        function = Competence(kind, Decimal(str(START)), stairs=STAIRS)
        xs, ys = np.array(list(eligible(function))).T
        axes.fill_between(xs, ys, 1, color=PADDING)
        axes.plot(xs, ys, color=DARK, linewidth=0.9)
    axes.plot(*difficulties(plan, lengths), ".", color="#2f6fb0", markersize=2.5, clip_on=False)
    axes.set_title(title)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "progress of the run", "1"])
    percentages(axes)


def curricula() -> Iterator[tuple[str, Kind | None, dict[str, Any]]]:
    """Yield title, competence function and parameters of each diagram."""
    for kind in KINDS:
        rules = {"difficulty": "length", "competence": kind, "start": START, "stairs": STAIRS}
        yield f'competence = "{kind}"', kind, {"curriculum": rules}
    in_order = {"difficulty": "length", "order": "easy_to_hard"}
    yield 'order = "easy_to_hard", twice', None, {"curriculum": in_order, "max_repetition": 2.0}
    yield "no curriculum", None, {}


def curriculum_picture() -> Figure:
    """Draw when documents of which difficulty come, by each curriculum."""
    figure = Figure(figsize=(8.7, 5.1), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 3).flat, curricula(), strict=True):
        curriculum_panel(axes, *panel)
    text = "a dot: a document; its height: which part of the tokens is in easier ones; grey: not eligible yet"
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "mixing-schedule.svg": schedule_picture,
    "mixing-curriculum.svg": curriculum_picture,
}

if __name__ == "__main__":
    write(PICTURES, Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
