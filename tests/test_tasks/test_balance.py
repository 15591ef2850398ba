"""Balance: factors by hand, counts scaled exactly, the artifact's bytes."""

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from tokmill.tasks.balance.stage import (
    BalanceParams,
    SourceSize,
    balanced,
    scaled_counts,
    summary,
    weighted_counts,
)
from tokmill.tasks.core.errors import BalanceError
from tokmill.tasks.formats.balance import Balance

SIZES = {"big": SourceSize(10, 900), "small": SourceSize(40, 100)}
TOP = (1 << 64) - 1


def balance(sizes=SIZES, **params):
    return balanced(BalanceParams(**params), sizes)


def factors(**params):
    return {source: float(factor) for source, factor in balance(**params).factors.items()}


def test_proportional_balance_changes_nothing():
    assert factors() == {"big": 1.0, "small": 1.0}


def test_temperature_by_hand():
    # sqrt(900) : sqrt(100) = 3 : 1 of 1000 bytes: 750 and 250, that is 0.8333… and 2.5 times what there is.
    found = balance(temperature=2.0)
    assert [entry.share for entry in found.sources] == [0.75, 0.25]
    assert [entry.natural_share for entry in found.sources] == [0.9, 0.1]
    assert [entry.factor for entry in found.sources] == [0.833333333333, 2.5]
    assert (found.method, found.temperature, found.total) == ("temperature", 2.0, 1000)


def test_the_unit_is_what_sizes_are_counted_in():
    # 10 and 40 documents: 1 : 2 by square roots, 50/3 and 100/3 documents
    assert factors(temperature=2.0, unit="documents") == {"big": 1.66666666667, "small": 0.833333333333}


def test_a_cap_binds_and_says_so():
    # 3 : 1 would repeat small 2.5 times; with 2 it gets 200 bytes and big the other 800.
    found = balance(temperature=2.0, max_repetition=2)
    assert [entry.factor for entry in found.sources] == [0.888888888889, 2.0]
    assert [entry.capped for entry in found.sources] == [False, True]


def test_unimax_is_uniform_up_to_its_epochs():
    assert factors(method="unimax", max_repetition=4) == {"big": 0.666666666667, "small": 4.0}
    assert factors(method="unimax", max_repetition=10) == {"big": 0.555555555556, "small": 5.0}


def test_weights_decide_and_zero_leaves_out():
    assert factors(weights={"big": 0.0, "small": 2.0}) == {"big": 0.0, "small": 10.0}


def test_without_a_total_the_caps_may_make_the_corpus_smaller():
    found = balance(weights={"big": 0.0, "small": 2.0}, max_repetition=3)
    assert found.total == 300
    assert found.factors == {"big": Decimal("0.0"), "small": Decimal("3.0")}


def test_a_total_beyond_the_caps_says_what_is_feasible():
    with pytest.raises(BalanceError, match=r"total=3001 bytes is more than max_repetition=3.0.*at most 3000"):
        balance(total=3001, max_repetition=3)


def test_a_weight_for_a_source_without_text_is_refused():
    with pytest.raises(BalanceError, match="'empty' has a weight but 0 bytes"):
        balance({**SIZES, "empty": SourceSize(0, 0)}, weights={"big": 1, "small": 1, "empty": 1})


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


def test_counts_are_rounded_half_to_even():
    assert scaled([0, 1, 2, 3, 5, 7], "0.5") == [0, 0, 1, 2, 2, 4]
    assert scaled([0, 1, 2, 3], "2.5") == [0, 2, 5, 8]
    assert scaled([0, 1, 1000], "0.000001") == [0, 0, 0]
    assert scaled([0, 7], "0") == [0, 0]
    assert scaled([3], "12E+3") == [36_000]


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
    for source, factor in found.factors.items():
        once = int(weighted_counts(found, {source: np.array([1], dtype=np.uint64)})[source][0])
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
