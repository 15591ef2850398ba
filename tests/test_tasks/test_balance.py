"""Shares of sources by hand and by the paper's UniMax; factors, and counts scaled exactly."""

import json
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st
from pydantic import ValidationError

from tokmill.tasks.balance.stage import (
    BalanceParams,
    SourceSize,
    balanced,
    scaled_counts,
    scales_of,
    summary,
)
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


def test_temperature_by_hand():
    # sqrt(900) : sqrt(100) = 3 : 1 of 1000 bytes: 750 and 250, that is 0.8333… and 2.5 times what there is.
    found = balance(temperature=2.0)
    assert [entry.share for entry in found.sources] == [0.75, 0.25]
    assert [entry.natural_share for entry in found.sources] == [0.9, 0.1]
    assert [entry.factor for entry in found.sources] == [0.833333333333, 2.5]
    assert (found.method, found.temperature, found.total) == ("temperature", 2.0, 1000)


@pytest.mark.parametrize(
    ("params", "big", "small", "capped"),
    [
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
    assert [entry.capped for entry in balance(**params).sources] == [False, capped]


def test_a_total_beyond_the_caps_says_what_is_feasible():
    with pytest.raises(BalanceError, match=r"total=3001 bytes is more than max_repetition=3.0.*at most 3000"):
        balance(total=3001, max_repetition=3)


@given(
    st.lists(st.integers(1, 10**12), min_size=1, max_size=8),
    st.sampled_from([{"temperature": 3.3}, {"method": "unimax"}, {}]),
    st.one_of(st.none(), st.floats(1, 50)),
)
def test_shares_add_up_and_caps_hold(num_bytes, rule, limit):
    sizes = {f"s{k}": SourceSize(1, size) for k, size in enumerate(num_bytes)}
    found = balance(sizes, max_repetition=limit, **rule)
    assert sum(Decimal(repr(entry.share)) for entry in found.sources) == 1
    for entry in found.sources:
        assert limit is None or entry.factor <= limit * (1 + 1e-11)
    amounts = [entry.factor * entry.num_bytes for entry in found.sources]
    assert sum(amounts) == pytest.approx(found.total, rel=1e-9)


def half_even(value: Fraction) -> int:
    return round(value)  # Python rounds fractions half to even


def scaled(counts, factor):
    return scaled_counts(np.array(counts, dtype=np.uint64), Decimal(factor)).tolist()


@given(
    st.lists(st.integers(0, TOP), max_size=20),
    st.integers(0, 10**12 - 1),
    st.integers(0, 30),
)
@example([TOP, 1, 0], 5, 30)
@example([5, 15, 25], 1, 1)
def test_scaling_equals_fractions(counts, digits, places):
    factor = Fraction(digits, 10**places)
    expected = [half_even(count * factor) for count in counts]
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
        ({"total": 5000}, 1),  # 5 and 5
        ({"weights": {"big": 0.0, "small": 2.0}, "max_repetition": 3}, 1),
        ({"weights": {"big": 9, "small": 3}}, 10_000),  # 0.83 and 2.5
        ({"weights": {"big": 1, "small": 9}}, 10_000),  # 0.11 and 9
        ({"weights": {"big": 1, "small": 99}, "max_repetition": None}, 100_000),  # 0.011 and 9.9
        ({"total": 1_500_000, "max_repetition": None}, 1),  # 1500 and 1500
        ({"total": 1_500_500, "max_repetition": None}, 1),  # 1500.5: fine enough as it is
    ],
)
def test_the_smallest_factor_counts_a_thousand_times_unless_all_are_whole(params, resolution):
    assert balance(**params).resolution == resolution


@given(
    st.lists(st.integers(1, 10**13), min_size=2, max_size=6),
    st.lists(st.integers(1, 10**6), min_size=6, max_size=6),
)
def test_rounding_moves_no_count_by_more_than_one_part_in_two_thousand(num_bytes, weights):
    sizes = {f"s{k}": SourceSize(1, size) for k, size in enumerate(num_bytes)}
    rule = {source: weights[k] for k, source in enumerate(sizes)}
    try:
        found = balance(sizes, weights=rule)
    except BalanceError:  # what 64 bits do not hold is refused: the next test
        reject()
    assert sum(size * found.factors[f"s{k}"] for k, size in enumerate(num_bytes)) * found.resolution < 1 << 59
    room = found.resolution * sum(num_bytes) * 10 <= 1 << 58
    scales = scales_of(found, found.factors)
    for source, factor in found.factors.items():
        once = int(scaled_counts(np.array([1], dtype=np.uint64), scales[source])[0])
        assert once >= 1
        wanted = float(factor * found.resolution)
        assert abs(once - wanted) <= (wanted / 2000 if room else 0.5)


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


def test_a_share_that_was_given_and_cannot_be_had_is_warned_of():
    sizes = {"large": SourceSize(1, 10**6), "tiny": SourceSize(1, 360)}
    found = balance(sizes, weights={"large": 99, "tiny": 1})
    assert found.warnings == [
        "source 'tiny' has a share of 0.36%, and 1.00% was asked for: max_repetition=10 holds it back"
    ]
    faint = balance(sizes, weights={"large": 1e-5, "tiny": 1}, total=1000)
    assert faint.warnings == ["source 'large' counts 1e-08 times: little of it is learned"]
    assert found.warnings[0] in summary(found)


def test_the_file_reads_back_and_is_the_same_every_time(tmp_path):
    found = balance(temperature=3.0, max_repetition=2)
    found.save(tmp_path)
    first = (tmp_path / "balance.json").read_bytes()
    assert Balance.open(tmp_path) == found
    balance(temperature=3.0, max_repetition=2).save(tmp_path)
    assert (tmp_path / "balance.json").read_bytes() == first
    assert json.loads(first)["sources"][1]["factor"] == 2.0


CORPORA = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10**12), min_size=1)


def weights_of(sizes, **rule):
    return raw_weights(SamplingParams(**rule), sizes, BalanceError, "balance")


def shares_of(sizes, **rule):
    return {source: float(share) for source, share in proportions(weights_of(sizes, **rule)).items()}


def unimax(sizes, total, epochs):
    """Algorithm 1 of Chung et al. 2023, word for word: sources by ascending size, a budget that shrinks."""
    budget, amounts = Decimal(total), {}
    ascending = sorted(sizes, key=lambda source: sizes[source])
    for i, source in enumerate(ascending):
        even = budget / (len(ascending) - i)
        amounts[source] = min(even, Decimal(sizes[source]) * epochs)
        budget -= amounts[source]
    return amounts


def test_an_empty_source_gets_nothing_from_a_rule():
    for rule in ({"temperature": 2.0}, {"method": "unimax"}, {}):
        assert shares_of({"a": 5, "b": 0}, **rule) == {"a": 1.0, "b": 0.0}


def test_tiny_temperatures_do_not_overflow():
    assert shares_of({"a": 10**12, "b": 10**11}, temperature=1e-4) == {"a": 1.0, "b": 0.0}


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


@pytest.mark.parametrize(
    ("given_params", "message"),
    [
        ({"weights": {"a": -1.0}}, "greater than or equal to 0"),
        ({"weights": {"a": float("nan")}}, "finite number"),
        ({"weights": {"a": float("inf")}}, "finite number"),
        ({"weights": {"a": 0.0}}, "positive weight for at least one source"),
        ({"method": "weights"}, "positive weight for at least one source"),
        ({"temperature": 0.0}, "greater than 0"),
        ({"temperature": float("inf")}, "finite number"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(given_params, message):
    with pytest.raises(ValidationError, match=message):
        SamplingParams(**given_params)


def test_a_weight_for_an_unknown_source_names_the_nearest():
    with pytest.raises(BalanceError, match=r"unknown source 'englsh'; did you mean 'english'\?"):
        weights_of({"code": 1, "english": 2}, weights={"code": 1, "englsh": 1})


def test_a_source_without_a_weight_is_named():
    with pytest.raises(BalanceError, match=r"weights lack the source 'b'.*0 leaves it out.*b, c"):
        weights_of({"a": 1, "b": 2, "c": 3}, weights={"a": 1})


def test_what_the_method_does_not_read_bears_no_identity():
    assert SamplingParams(method="unimax", temperature=2, weights={"a": 1}) == SamplingParams(method="unimax")
    both = SamplingParams(weights={"a": 1}, temperature=2)
    assert (both.method, both.temperature) == ("weights", 1.0)
