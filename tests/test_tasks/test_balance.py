"""Shares of sources by hand and by the paper's UniMax; factors, and counts scaled exactly."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokmill.tasks.balance.stage import BalanceParams, SourceSize, balanced, scaled_counts, summary
from tokmill.tasks.core.errors import BalanceError
from tokmill.tasks.formats.counts import Balance
from tokmill.tasks.sampling import (
    EXACT,
    SamplingParams,
    capacity,
    proportions,
    raw_weights,
    rounded,
    water_fill,
)

SIZES = {"big": SourceSize(10, 900), "small": SourceSize(40, 100)}
TOP = (1 << 64) - 1


def balance(sizes=SIZES, **params):
    return balanced(BalanceParams(**params), sizes)


def factors(**params):
    return {source: float(factor) for source, factor in balance(**params).factors.items()}


@pytest.mark.parametrize(
    ("params", "big", "small", "capped"),
    [
        # sqrt(900) : sqrt(100) = 3 : 1 of 1000 bytes: 750 and 250: 0.8333… and 2.5 times what there is
        ({"temperature": 2.0}, 0.833333333333, 2.5, False),
        # 10 and 40 documents: 1 : 2 by square roots, 50/3 and 100/3 documents
        ({"temperature": 2.0, "unit": "documents"}, 1.66666666667, 0.833333333333, False),
        # 3 : 1 would repeat small 2.5 times; with 2 it gets 200 bytes and big the other 800
        ({"temperature": 2.0, "max_repetition": 2}, 0.888888888889, 2.0, True),
        ({"method": "unimax", "max_repetition": 4}, 0.666666666667, 4.0, True),
        ({"method": "unimax", "max_repetition": 10}, 0.555555555556, 5.0, False),
        ({"weights": {"big": 0.0, "small": 2.0}}, 0.0, 10.0, False),
    ],
)
def test_factors_by_hand(params, big, small, capped):
    assert factors(**params) == {"big": big, "small": small}
    found = balance(**params)
    assert [entry.capped for entry in found.sources] == [False, capped]
    assert [entry.natural_share for entry in found.sources][::-1] == (
        [0.8, 0.2] if "unit" in params else [0.1, 0.9]
    )
    assert sum(entry.share for entry in found.sources) == 1


def test_a_total_beyond_the_caps_says_what_is_feasible():
    with pytest.raises(BalanceError, match=r"total=3001 bytes is more than max_repetition=3.0.*at most 3000"):
        balance(total=3001, max_repetition=3)


def scaled(counts, factor):
    return scaled_counts(np.array(counts, dtype=np.uint64), Decimal(factor)).tolist()


@given(
    st.lists(st.integers(0, TOP), max_size=20),
    st.integers(0, 10**12 - 1),
    st.integers(0, 30),
)
@example([TOP, 1, 0], 5, 30)
@example([5, 15, 25], 1, 1)
@example([5 * 10**18, 6 * 10**18], 9, 20)  # beside a half
def test_scaling_equals_fractions(counts, digits, places):
    factor = Fraction(digits, 10**places)
    expected = [round(count * factor) for count in counts]
    text = f"{digits}E-{places}"
    if any(value > TOP for value in expected):
        with pytest.raises(BalanceError, match="exceeds 64 bits"):
            scaled(counts, text)
    else:
        assert scaled(counts, text) == expected


@pytest.mark.parametrize(
    ("params", "resolution"),
    [
        ({}, 1),  # nothing to round
        ({"weights": {"big": 0.0, "small": 2.0}, "max_repetition": 3}, 1),
        ({"weights": {"big": 1, "small": 9}}, 10_000),  # 0.11 and 9
        ({"weights": {"big": 1, "small": 99}, "max_repetition": None}, 100_000),  # 0.011 and 9.9
        ({"total": 1_500_000, "max_repetition": None}, 1),  # 1500 and 1500
        ({"total": 1_500_500, "max_repetition": None}, 1),  # 1500.5: fine enough as it is
    ],
)
def test_the_smallest_factor_counts_a_thousand_times_unless_all_are_whole(params, resolution):
    assert balance(**params).resolution == resolution


def test_factors_that_64_bits_do_not_hold_are_refused():
    sizes = {"big": SourceSize(1, 10**17), "small": SourceSize(1, 10**16)}
    with pytest.raises(BalanceError, match=r"factors from .* need counts of more than 64 bits; use weights"):
        balance(sizes, weights={"big": 1e-9, "small": 1})


def test_text_counts_ten_times_at_most_unless_more_is_asked_for():
    sizes = {"large": SourceSize(1, 10**6), "tiny": SourceSize(1, 360)}
    # at T = 3 tiny would count 184.5 times
    found = balance(sizes, temperature=3.0)
    assert [(entry.factor, entry.capped) for entry in found.sources] == [(0.99676, False), (10.0, True)]
    assert found.warnings == []
    free = balance(sizes, temperature=3.0, max_repetition=None)
    assert [line.partition(", so that")[0] for line in free.warnings] == ["source 'tiny' counts 184.5 times"]


def test_a_share_that_was_given_and_cannot_be_had_is_warned_of(tmp_path):
    sizes = {"large": SourceSize(1, 10**6), "tiny": SourceSize(1, 360)}
    found = balance(sizes, weights={"large": 99, "tiny": 1})
    assert found.warnings == [
        "source 'tiny' has a share of 0.36%, and 1.00% was asked for: max_repetition=10 holds it back"
    ]
    faint = balance(sizes, weights={"large": 1e-5, "tiny": 1}, total=1000)
    assert faint.warnings == ["source 'large' counts 1e-08 times: little of it is learned"]
    assert found.warnings[0] in summary(found)
    found.save(tmp_path)
    assert Balance.open(tmp_path) == found


CORPORA = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10**12), min_size=1)


def weights_of(sizes, **rule):
    return raw_weights(SamplingParams(**rule), sizes, BalanceError, "balance")


def unimax(sizes, total, epochs):
    """Algorithm 1 of Chung et al. 2023, word for word: sources by ascending size, a budget that shrinks."""
    budget, amounts = Decimal(total), {}
    ascending = sorted(sizes, key=lambda source: sizes[source])
    for i, source in enumerate(ascending):
        even = budget / (len(ascending) - i)
        amounts[source] = min(even, Decimal(sizes[source]) * epochs)
        budget -= amounts[source]
    return amounts


def test_a_cap_may_bind_only_after_another_has():
    # 6 : 3 : 1 of 100 with caps 20 and 50: a is cut to 20, then b would get 60 and is cut to 50, c gets the
    # 30 left.
    weights = {"a": Decimal(6), "b": Decimal(3), "c": Decimal(1)}
    caps = {"a": Decimal(20), "b": Decimal(50), "c": Decimal(90)}
    filling = water_fill(weights, caps, Decimal(100))
    assert filling.amounts == {"a": 20, "b": 50, "c": 30}
    assert filling.capped == ("a", "b")


@given(CORPORA, st.integers(1, 10), st.floats(0.01, 1))
def test_unimax_is_the_papers(sizes, epochs, part):
    caps = {source: Decimal(size * epochs) for source, size in sizes.items()}
    weights = weights_of(sizes, method="unimax")
    total = (capacity(weights, caps) * Decimal(str(part))).to_integral_value() + 1
    total = min(total, capacity(weights, caps))
    expected = unimax(sizes, total, epochs)
    found = water_fill(weights, caps, total).amounts
    assert {s: rounded(a, 18) for s, a in found.items()} == {s: rounded(expected[s], 18) for s in found}


@given(CORPORA, st.floats(0.1, 50), st.floats(1, 20), st.floats(0.01, 1))
def test_filling_hands_out_everything_and_respects_caps(sizes, temperature, limit, part):
    weights = weights_of(sizes, temperature=temperature)
    with localcontext(EXACT):
        caps = {source: Decimal(str(limit)) * size for source, size in sizes.items()}
        total = capacity(weights, caps) * Decimal(str(part))
        filling = water_fill(weights, caps, total)
        assert abs(sum(filling.amounts.values()) - total) <= total * Decimal("1e-40")
        assert all(amount <= caps[source] for source, amount in filling.amounts.items())
        uncapped = [source for source in sizes if source not in filling.capped]
        levels = [filling.amounts[source] / weights[source] for source in uncapped]
        assert all(abs(level - levels[0]) <= levels[0] * Decimal("1e-20") for level in levels)


def test_an_empty_source_gets_nothing_and_a_tiny_temperature_does_not_overflow():
    for rule in ({"temperature": 2.0}, {"method": "unimax"}, {}):
        assert weights_of({"a": 5, "b": 0}, **rule)["b"] == 0
    weights = weights_of({"a": 10**12, "b": 10**11}, temperature=1e-4)
    assert list(proportions(weights).values()) == [1, 0]


def test_a_weight_for_an_unknown_source_names_the_nearest():
    with pytest.raises(BalanceError, match=r"weights lack the source 'b'.*0 leaves it out.*b, c"):
        weights_of({"a": 1, "b": 2, "c": 3}, weights={"a": 1})
    with pytest.raises(BalanceError, match=r"unknown source 'englsh'; did you mean 'english'\?"):
        weights_of({"code": 1, "english": 2}, weights={"code": 1, "englsh": 1})


def test_what_the_method_does_not_read_bears_no_identity():
    assert SamplingParams(method="unimax", temperature=2, weights={"a": 1}) == SamplingParams(method="unimax")
    both = SamplingParams(weights={"a": 1}, temperature=2)
    assert (both.method, both.temperature) == ("weights", 1.0)
