"""Schedules: golden plans by hand for the three kinds of change, and the law of shares under any schedule."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.test_tasks.planned import Planned, assert_shares_hold
from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.stage import MixParams

# A step is 8 × 125 tokens and a document 25,000 steps, so that a run of 600,000 steps has 24 documents, of
# which the first point of the schedule holds 4, the second 16 and the third 4. Below, a document is the unit.
STEPS = {"schedule_unit": "steps", "sequence_length": 8, "global_batch_size": 125}
DOCUMENT = 25_000_000


def textbook(first, second, third, **params):
    schedule = [(0, first), (100_000, second), (500_000, third)]
    corpus = {name: [[DOCUMENT] * 24] for name in first}
    return Planned(corpus, schedule=schedule, total_tokens=24 * DOCUMENT, **STEPS, **params)


TWO = ({"web": 1, "code": 0}, {"web": 0.5, "code": 0.5}, {"web": 0, "code": 1})


def test_weights_that_hold():
    # web alone; then one each, of which web, the lower one, finishes first; then code and papers likewise
    found = textbook(
        {"web": 1, "code": 0, "papers": 0},
        {"web": 1, "code": 1, "papers": 0},
        {"web": 0, "code": 1, "papers": 1},
    )
    assert found.letters == "wwww" + "wc" * 8 + "cp" * 2
    assert [entry.drawn_documents for entry in found.manifest.sources] == [12, 10, 2]


@pytest.mark.parametrize(
    ("change", "letters"),
    [
        # web's share goes 1 → 1/2 → 0 and is asked for A(x) = x - x²/16 up to 4, then 3 + y/2 - y²/64 with
        # y = x - 4. Its documents finish where A = 1, 2, …: at 1.07, 2.34, 4, 6.14, 8.69, 12 and 20; code's
        # at 4, 5.89, 7.60, 9.17, 10.63, 12, 13.30, … Each starts where the one before it finishes. At 0
        # both have started: web (1.07). At 1 web's second has not: code (4). At 2: web (2.34). At 3: web
        # (4). At 4 both start: code (5.89). At 5: web (6.14). At 6 only code has: 7.60. At 7: web (8.69).
        # At 8: code (9.17). At 9: web (12). At 10, 11 and 12: code. At 13 code's next has not started: web
        # (20). Then only code.
        ("linear", "wcwwcwcwcwcccw" + "c" * 10),
        # web's share is 3/4 + cos(πx/4)/4 up to 4, then 1/4 + cos(πy/16)/4 up to 20. Its documents finish
        # at 1.03, 2.25, 4, 6.03, 8.24, 11.004 and 20; code's at 4, 5.98, 7.83, 9.50, 10.998, 12.36, … As
        # above up to 9: web (11.004). At 10: code (10.998), for web's next starts at 11.004, and at 11
        # likewise: code (12.36). At 12: web (20), since code's next starts at 12.36. Then only code.
        ("cosine", "wcwwcwcwcwccw" + "c" * 11),
    ],
)
def test_weights_that_change(change, letters):
    assert textbook(*TWO, change=change).letters == letters


def test_steps_tokens_and_fractions_say_the_same():
    corpus = {"a": [[7, 5, 3] * 60], "b": [[4, 9] * 60]}
    weights = [{"a": 1, "b": 3}, {"a": 2, "b": 1}]
    plans = [
        Planned(corpus, schedule=list(zip(starts, weights, strict=True)), total_tokens=640, **unit)
        for starts, unit in [
            ((0, 5), {"schedule_unit": "steps", "sequence_length": 8, "global_batch_size": 4}),
            ((0, 160), {"schedule_unit": "tokens"}),
            ((0, 0.25), {"schedule_unit": "fraction"}),
        ]
    ]
    assert len({(plan.letters, tuple(plan.plan.document.tolist())) for plan in plans}) == 1


def test_a_warm_up_by_hand():
    # b's weight is 0 at the beginning, 1 from token 8 on: of the first 8 tokens its share u/(1 + u) with u
    # from 0 to 1 is asked for, which is 8 × (1 - ln 2) = 2.45 tokens; of the last 8 it is a half.
    found = Planned(
        {"a": [[1] * 16], "b": [[1] * 16]},
        weights={"a": 1, "b": 1},
        warmup={"b": {"stop": 8}},
        schedule_unit="tokens",
        total_tokens=16,
    )
    early, half = (float(found.curves.requested(Decimal(at))["b"]) for at in (4, 8))
    assert (early, half) == pytest.approx((4 - 8 * math.log(1.5), 8 - 8 * math.log(2)), abs=1e-4)
    assert [entry.drawn_tokens for entry in found.manifest.sources] == [10, 6]


def test_an_annealing_brings_a_source_late_and_one_left_out_in_the_end_stops_below_its_quota():
    late = Planned(
        {"web": [[10] * 100], "papers": [[10] * 100]},
        proportions={"web": 0.9, "papers": 0.1},
        annealing={"papers": {"start": 0.8, "stop": 0.8, "factor": 81}},
        total_tokens=1000,
    )
    # from 0.8 on the weights are 0.9 to 8.1
    assert (late.letters[:80].count("p"), late.letters[80:].count("p")) == (8, 18)
    schedule = [(0, {"a": 1, "b": 1}), (22, {"a": 0, "b": 1})]
    corpus = {"a": [[4] * 20], "b": [[1] * 100]}
    out = Planned(corpus, schedule=schedule, schedule_unit="tokens", total_tokens=50).manifest.sources
    assert [(entry.quota_tokens, entry.drawn_tokens) for entry in out] == [(11, 8), (39, 39)]
    assert MixParams(schedule=schedule, schedule_unit="tokens", weights={"a": 3.0}).weights == {}
    assert MixParams(sequence_length=64, global_batch_size=4, schedule_unit="steps") == MixParams()


POINTS = st.integers(1, 4).flatmap(
    lambda number: st.tuples(
        st.lists(st.integers(1, 999), min_size=number - 1, max_size=number - 1, unique=True).map(sorted),
        st.lists(
            st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), min_size=number, max_size=number
        ),
    )
)


def by_fractions(starts, weights, change, total):
    """What is asked for by a position, by adding up thin slices: an oracle without our formulas."""
    places = np.linspace(0, 1, 4001)
    shares = np.array([[w / sum(point) for w in point] for point in weights])
    at = np.searchsorted(starts, (places[1:] + places[:-1]) / 2, side="right") - 1
    middle = (places[1:] + places[:-1]) / 2
    rows = []
    for place, k in zip(middle, at, strict=True):
        if change == "hold" or k + 1 == len(starts):
            rows.append(shares[k])
            continue
        u = (place - starts[k]) / (starts[k + 1] - starts[k])
        u = u if change == "linear" else (1 - math.cos(math.pi * u)) / 2
        rows.append(shares[k] + (shares[k + 1] - shares[k]) * u)
    sums = np.vstack([np.zeros(3), np.cumsum(rows, axis=0)]) * total / 4000
    return lambda position: [np.interp(float(position), places * total, sums[:, k]) for k in range(3)]


@settings(max_examples=40)
@given(POINTS, st.sampled_from(["hold", "linear", "cosine"]), st.integers(1, 60), st.integers(0, 9))
def test_shares_hold_at_every_point_of_every_schedule(points, change, longest, seed):
    starts, weights = [0, *(start / 1000 for start in points[0])], points[1]
    random = np.random.default_rng(seed)
    corpus = {name: [random.integers(1, longest + 1, 60).tolist()] for name in "abc"}
    schedule = [
        (start, dict(zip("abc", point, strict=True))) for start, point in zip(starts, weights, strict=True)
    ]
    found = Planned(corpus, schedule=schedule, change=change, total_tokens=30, max_repetition=40.0, seed=seed)
    assert_shares_hold(found, by_fractions(starts, weights, change, 30), slack=0.05)
    assert_shares_hold(found)
    assert all(account.balanced for account in found.accounts)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"schedule": [(1, {"a": 1})]}, "the first start is 1 and must be 0"),
        ({"schedule": [(0, {"a": 1}), (0.5, {"a": 1}), (0.5, {"a": 1})]}, "starts must increase"),
        ({"schedule": [(0, {"a": 1}), (0.9, {"a": 1}), (0.3, {"a": 1})]}, "start=0.3 comes after start=0.9"),
        ({"schedule": [(0, {"a": 1}), (100, {"a": 1})]}, "100 must be at most 1, since schedule_unit='fr"),
        ({"schedule": [(0, {})]}, "needs weights or proportions"),
        ({"schedule": [(0, {"a": 0})]}, "has no positive weight"),
        ({"schedule": [(0, {"a": math.nan})]}, "finite number"),
        ({"schedule": [{"start": 0, "proportions": {"a": 0.5, "b": 0.4}}]}, "sum to 0.9 and must sum to 1"),
        ({"schedule": [(0, {"a": 1}), (5, {"a": 1})], "schedule_unit": "steps"}, "needs global_batch_size"),
        ({"schedule": [(0, {"a": 1})], **STEPS, "sequence_length": 7}, "greater than or equal to 8"),
        ({"warmup": {"a": {"start": 0.5, "stop": 0.1}}}, "stop=0.1 must be at least start=0.5"),
        ({"method": "unimax", "warmup": {"a": {"stop": 0.1}}}, "method='unimax'"),
        ({"proportions": {"a": 0.5, "b": 0.4}}, "sum to 0.9 and must .*; use {a = 0.555556, b = 0.444444}"),
        ({"proportions": {"a": 0.5}, "weights": {"a": 1}}, "weights and proportions exclude each other"),
        ({"weights": {"a": -0.5}}, "greater than or equal to 0"),
        ({"weights": {"a": 0}}, "needs a positive weight"),
        ({"method": "unimax"}, "takes every source whole, as 'proportional' does"),
        ({"method": "unimax", "max_repetition": {"a": 1.0}}, "takes every source whole"),
    ],
)
def test_what_makes_no_sense_is_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        MixParams(**params)


START = [(0, {"a": 1, "b": 1})]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"schedule": [*START, (0.5, {"a": 1, "x": 1})]}, r"the weights at 0\.5 name an unknown source 'x'"),
        ({"schedule": [(0, {"a": 1})]}, "schedule: the weights at 0 lack the source 'b'"),
        ({"warmup": {"x": {"stop": 0.5}}}, "warmup name an unknown source 'x'"),
        ({"weights": {"a": 1, "b": 0}, "warmup": {"a": {"stop": 0.5}}}, "at 0 of the run no source has a w"),
        ({"schedule": START, "schedule_unit": "steps", "global_batch_size": 2}, "needs sequence_length"),
    ],
)
def test_schedules_that_do_not_fit_the_sources_are_refused(params, message):
    with pytest.raises(MixingError, match=message):
        Planned({"a": [[1] * 50], "b": [[1] * 50]}, **params)
