"""Balance: factors by hand, counts scaled exactly, the artifact's bytes."""

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.balance import BalanceParams, SourceSize, balanced, scaled_counts, summary, weighted_counts
from tasks.errors import BalanceError, StoreError
from tasks.formats.balance import Balance

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


def test_a_total_scales_every_factor():
    assert factors(total=5000) == {"big": 5.0, "small": 5.0}


def test_a_total_beyond_the_caps_says_what_is_feasible():
    with pytest.raises(BalanceError, match=r"total=3001 bytes is more than max_repetition=3.0.*at most 3000"):
        balance(total=3001, max_repetition=3)


def test_a_weight_for_a_source_without_text_is_refused():
    with pytest.raises(BalanceError, match="'empty' has a weight but 0 bytes"):
        balance({**SIZES, "empty": SourceSize(0, 0)}, weights={"big": 1, "small": 1, "empty": 1})


def test_a_corpus_without_text_is_refused():
    with pytest.raises(BalanceError, match="the corpus has 0 bytes"):
        balance({"a": SourceSize(1, 0)})


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


def test_counts_are_rounded_half_to_even_and_never_to_nothing():
    assert scaled([0, 1, 2, 3, 5, 7], "0.5") == [0, 1, 1, 2, 2, 4]
    assert scaled([0, 1, 2, 3], "2.5") == [0, 2, 5, 8]
    assert scaled([0, 1, 1000], "0.000001") == [0, 1, 1]
    assert scaled([0, 7], "0") == [0, 0]
    assert scaled([3], "12E+3") == [36_000]


def test_large_counts_are_exact():
    assert scaled([TOP], "0.999999999999") == [half_even(Fraction(TOP) * Fraction("0.999999999999"))]
    assert scaled([TOP], "1") == [TOP]


def test_a_product_beyond_64_bits_is_refused():
    with pytest.raises(BalanceError, match="exceeds 64 bits"):
        scaled([1, TOP], "1.01")


@given(
    st.lists(st.integers(0, TOP), max_size=20),
    st.integers(0, 10**12 - 1),
    st.integers(0, 30),
)
@example([TOP, 1, 0], 5, 30)
@example([5, 15, 25], 1, 1)
def test_scaling_equals_fractions(counts, digits, places):
    factor = Fraction(digits, 10**places)
    expected = [max(half_even(count * factor), int(count > 0 and digits > 0)) for count in counts]
    text = f"{digits}E-{places}"
    if any(value > TOP for value in expected):
        with pytest.raises(BalanceError, match="exceeds 64 bits"):
            scaled(counts, text)
    else:
        assert scaled(counts, text) == expected


def test_weighted_counts_go_by_source():
    counts = {"small": np.array([4, 1], dtype=np.uint64), "big": np.array([3], dtype=np.uint64)}
    found = weighted_counts(balance(temperature=2.0), counts)
    assert {source: array.tolist() for source, array in found.items()} == {"small": [10, 2], "big": [2]}


def test_counts_of_another_corpus_are_refused():
    with pytest.raises(BalanceError, match="no factor for source 'other'"):
        weighted_counts(balance(), {"other": np.array([1], dtype=np.uint64)})


def test_the_file_reads_back_and_is_the_same_every_time(tmp_path):
    found = balance(temperature=3.0, max_repetition=2)
    found.save(tmp_path)
    first = (tmp_path / "balance.json").read_bytes()
    assert Balance.open(tmp_path) == found
    balance(temperature=3.0, max_repetition=2).save(tmp_path)
    assert (tmp_path / "balance.json").read_bytes() == first
    assert json.loads(first)["sources"][1]["factor"] == 2.0


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "balance.json").write_text("{}")
    with pytest.raises(StoreError, match=r"balance\.json: not a readable balance"):
        Balance.open(tmp_path)


def test_the_summary_shows_natural_against_balanced():
    lines = summary(balance(temperature=2.0, max_repetition=2)).splitlines()
    assert lines[-2:] == [
        "| big | 10 | 900 | 90.00% | 80.00% | 0.888889 | – |",
        "| small | 40 | 100 | 10.00% | 20.00% | 2 | bound |",
    ]
