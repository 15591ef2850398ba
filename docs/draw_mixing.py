"""Draw the pictures of docs/mixing.md, from mixtures of made-up documents that the code plans.

python docs/draw_mixing.py            # writes docs/pictures/mixing-*.svg again
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from drawing import Points, area, dots, line, svg, words, write
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import Plan
from tokmill.tasks.mixing.competence import Competence, Kind
from tokmill.tasks.mixing.curves import Curves
from tokmill.tasks.mixing.lengths import SourceLengths
from tokmill.tasks.mixing.sorting import Scratch
from tokmill.tasks.mixing.stage import MixParams, Planning

COLORS = {"web": "#8db4e2", "code": "#f2bd7c", "papers": "#8cc49b"}
DARK, PALE, AXIS = "#333333", "#ececec", "#999999"
PLACES = 240  # at which lines are drawn
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


@dataclass(frozen=True)
class Panel:
    """One diagram of a picture: both axes go from 0 to 1."""

    left: float
    top: float
    width: float
    height: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point in the picture."""
        return self.left + x * self.width, self.top + (1 - y) * self.height

    def points(self, xs: NDArray[np.float64], ys: NDArray[np.float64]) -> Points:
        """The places of many."""
        return [self.at(x, y) for x, y in zip(xs.tolist(), ys.tolist(), strict=True)]

    def frame(self, title: str, ticks: Mapping[float, str]) -> list[str]:
        """Its title, its axes, and what is written at them."""
        (x, y), (right, top) = self.at(0, 0), self.at(1, 1)
        parts = [words(x, top - 8, title), line([(x, top), (x, y), (right, y)], AXIS)]
        parts += [words(self.at(place, 0)[0], y + 14, text, "middle") for place, text in ticks.items()]
        return parts + [
            words(x - 5, self.at(0, share)[1] + 4, f"{share:.0%}", "end") for share in (0, 0.5, 1)
        ]


def panels(number: int, columns: int, width: float, height: float) -> Iterator[Panel]:
    """Yield the places of diagrams, row after row."""
    for k in range(number):
        yield Panel(58 + k % columns * (width + 56), 28 + k // columns * (height + 58), width, height)


def made_up(number: int, most: int) -> NDArray[np.int64]:
    """The lengths of documents, from 20 tokens on; the same on every machine."""
    k = np.arange(number, dtype=np.int64)
    return 20 + (k * k * 7919 + k * 104_729) % (most - 20)


def planned(corpus: Mapping[str, NDArray[np.int64]], **params: Any) -> tuple[Plan, Curves]:
    """Plan a mixture; returns it, and what was asked of it."""
    sources = {name: SourceLengths.of_arrays([lengths]) for name, lengths in corpus.items()}
    with TemporaryDirectory() as folder:
        planning = Planning.of(MixParams(**params), sources, Scratch(Path(folder)))
        return Plan.join(list(planning.blocks())), planning.settled.curves


def stacked(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lower and upper bounds of areas that lie on each other: float64 [points, sources + 1]."""
    return np.hstack([np.zeros((len(shares), 1)), np.cumsum(shares, axis=1)])


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
    for segment in curves.segments:
        places += [float(segment.start / curves.end), float(segment.stop / curves.end)]
        shares += [list(map(float, segment.first)), list(map(float, segment.last))]
    return np.array(places), np.array(shares)


def shares_panel(panel: Panel, title: str, params: Mapping[str, Any]) -> list[str]:
    """Draw what a plan gives as areas, and what was asked of it as lines."""
    plan, curves = planned({name: made_up(4000, 400) for name in COLORS}, **STEPS, **params)
    bounds = stacked(given(plan, len(COLORS)))
    edges = np.repeat(np.arange(BINS + 1) / BINS, 2)[1:-1]
    parts = []
    for k, fill in enumerate(COLORS.values()):
        low, high = (np.repeat(bounds[:, j], 2) for j in (k, k + 1))
        parts.append(area([*panel.points(edges, low), *panel.points(edges[::-1], high[::-1])], fill))
    places, shares = asked(curves)
    parts += [line(panel.points(places, stacked(shares)[:, k]), DARK, 1.2) for k in range(1, len(COLORS))]
    ticks = {0: "0", 1 / 6: "100,000", 5 / 6: "500,000", 1: "600,000"}
    return parts + panel.frame(title, ticks)


def schedule_picture() -> str:
    """Draw the shares of three sources over a run, by each kind of change."""
    parts = []
    for panel, (title, params) in zip(panels(4, 2, 300, 150), SCHEDULES.items(), strict=True):
        parts += shares_panel(panel, title, params)
    for k, (name, fill) in enumerate(COLORS.items()):
        parts += [area(corners(58 + k * 80, 434), fill), words(74 + k * 80, 443, name)]
    parts.append(words(330, 443, "areas: what the plan gives; lines: what was asked; below: steps"))
    return svg(740, 456, parts)


def corners(x: float, y: float, side: float = 11) -> Points:
    """A square in the legend."""
    return [(x, y), (x + side, y), (x + side, y + side), (x, y + side)]


def difficulties(plan: Plan, lengths: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each document of a plan when it comes, and which part of all tokens is in shorter ones."""
    shorter = np.concatenate([[0], np.cumsum(np.sort(lengths))])
    ends = np.cumsum(plan.num_tokens, dtype=np.int64)
    before = shorter[np.searchsorted(np.sort(lengths), plan.num_tokens)]
    return (ends - plan.num_tokens) / ends[-1], before / lengths.sum()


def eligible(function: Competence) -> Iterator[tuple[float, float]]:
    """Yield the points of a competence function's graph, two where it jumps."""
    for k in range(PLACES + 1):
        place = Decimal(k) / PLACES
        yield float(place), float(function.eligible(place, before=k > 0))
        yield float(place), float(function.eligible(place))


def curriculum_panel(panel: Panel, title: str, kind: Kind | None, params: Mapping[str, Any]) -> list[str]:
    """Draw every document of a plan as a dot, and the competence function, if there is one, as a line."""
    lengths = made_up(420, 4000)
    plan, _ = planned({"web": lengths}, **params)
    parts = []
    if kind is not None:
        function = Competence(kind, Decimal(str(START)), stairs=STAIRS)
        curve = [panel.at(*point) for point in eligible(function)]
        parts = [area([*curve, panel.at(1, 1), panel.at(0, 1)], PALE), line(curve, DARK, 1.2)]
    parts.append(dots(panel.points(*difficulties(plan, lengths)), "#2f6fb0", 2.6))
    return parts + panel.frame(title, {0: "0", 0.5: "progress of the run", 1: "1"})


def curricula() -> Iterator[tuple[str, Kind | None, dict[str, Any]]]:
    """Yield title, competence function and parameters of each diagram."""
    for kind in KINDS:
        rules = {"difficulty": "length", "competence": kind, "start": START, "stairs": STAIRS}
        yield f'competence = "{kind}"', kind, {"curriculum": rules}
    in_order = {"difficulty": "length", "order": "easy_to_hard"}
    yield 'order = "easy_to_hard", twice', None, {"curriculum": in_order, "max_repetition": 2.0}
    yield "no curriculum", None, {}


def curriculum_picture() -> str:
    """Draw when documents of which difficulty come, by each curriculum."""
    parts = []
    for panel, (title, kind, params) in zip(panels(6, 3, 210, 170), curricula(), strict=True):
        parts += curriculum_panel(panel, title, kind, params)
    text = "a dot: a document; its height: which part of the tokens is in easier ones; grey: not eligible yet"
    parts.append(words(58, 478, text))
    return svg(832, 490, parts)


PICTURES: dict[str, Callable[[], str]] = {
    "mixing-schedule.svg": schedule_picture,
    "mixing-curriculum.svg": curriculum_picture,
}

if __name__ == "__main__":
    write(PICTURES, Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
