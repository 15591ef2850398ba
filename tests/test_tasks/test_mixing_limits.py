"""Where rounding meets a limit: lots that round to 1, roots of less than 0, more copies than epochs."""

import math

import numpy as np
import pytest

from tests.test_tasks.planned import Planned
from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.kernels.drawing import LINEAR, Course, Rule, draw_times, logarithm
from tokmill.tasks.kernels.interleave import EMPTY, FRESH, Clock, Curve, Lanes, weave


@pytest.mark.parametrize("copies", [1, 3, 7, 1000, 65_535])
def test_the_greatest_lots_are_drawn_last(copies):
    lots = np.array(
        [0, 1 << 63, (1 << 64) - 1 - (1 << 12), (1 << 64) - 1 - (1 << 11), (1 << 64) - 1], np.uint64
    )
    knots, shares = np.array([0.0, 100.0]), np.ones(1)
    course = Course(knots, shares, shares, knots, knots, np.array([0.0, 5.0]))
    releases, times = np.empty(len(lots)), np.empty(len(lots))
    rule = Rule(kind=LINEAR, start=1.0, until=1.0, stairs=1, most=1.0)
    draw_times(np.zeros(len(lots)), lots, copies - 1, copies, rule, course, releases, times)
    assert np.isfinite(times).all()
    assert (np.diff(times) >= 0).all()


@pytest.mark.parametrize("value", [5e-324, 2.0**-1022, 2.0**-54, 0.5, 1.0, 3.0, 1.7e308])
def test_the_logarithm_of_any_positive_number_ends(value):
    assert logarithm(value) == pytest.approx(math.log(value), rel=1e-14, abs=1e-15)


def lanes_of(given, lengths):
    """One lane a source, each with one document."""
    size = len(lengths)
    zeros = [np.zeros(size) for _ in range(6)]
    return Lanes(
        lengths=np.array(lengths, dtype=np.uint32),
        waiting=np.ones(size, dtype=np.int64),
        taken=np.zeros(size, dtype=np.int64),
        state=np.full(size, FRESH, dtype=np.int64),
        given=np.array(given),
        lacking=zeros[0],
        starts=zeros[1],
        finishes=zeros[2],
        segments=np.zeros(size, dtype=np.int64),
        ahead=zeros[4],
        behind=zeros[5],
    )


def test_a_share_that_falls_to_zero_far_along_a_run_has_places_all_the_same():
    # a's share falls from 1 to 0 in 19.9999 tokens, so 9.99995 are asked of it; beside 10^12 that rounds to
    # more than 10, and its document of 10 ends where the root is of less than 0
    before, width = 1e12, 19.9999
    after = np.nextafter(before + width / 2, np.inf)
    curve = Curve(
        knots=np.array([0.0, width]),
        firsts=np.array([1.0, 0.0]),
        lasts=np.array([0.0, 1.0]),
        sums=np.array([before, before, after, after]),
    )
    assert after - before > 10
    lanes, places = lanes_of([before, before], [10, 10]), np.empty(4, dtype=np.int64)
    clock = Clock(np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64))
    assert weave(curve, lanes, clock, np.inf, places) == 1
    assert lanes.state.tolist()[0] == EMPTY
    assert np.isfinite(lanes.finishes).all()
    assert lanes.finishes[0] == pytest.approx(width, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "copies"), [("linear", 65_536), ("sqrt", 65_536), ("exp", 68_611)])
def test_more_copies_than_epochs_can_be_written_are_refused(kind, copies):
    asked = {"max_repetition": 1e6, "curriculum": {"difficulty": "length", "competence": kind}}
    with pytest.raises(MixingError, match=f"'a' would be drawn {copies} times; at most 65535"):
        Planned({"a": [[1]]}, total_tokens=65_536, **asked)
    most = 65_535 * 65_536 // copies
    assert len(Planned({"a": [[1]]}, total_tokens=most, **asked).plan.epoch) == most
