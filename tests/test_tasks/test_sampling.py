"""Shares of sources: hand-computed cases, the paper's UniMax as oracle, and the laws."""

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tokmill.tasks.core.errors import BalanceError
from tokmill.tasks.sampling import (
    EXACT,
    UNLIMITED,
    SamplingParams,
    capacity,
    proportions,
    raw_weights,
    rounded,
    water_fill,
)

SIZES = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10**12), min_size=1)


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


def test_a_temperature_of_two_takes_square_roots():
    # sqrt(9) : sqrt(4) : sqrt(1) = 3 : 2 : 1
    assert shares_of({"a": 9, "b": 4, "c": 1}, temperature=2.0) == {
        "a": 0.5,
        "b": pytest.approx(1 / 3, abs=1e-12),
        "c": pytest.approx(1 / 6, abs=1e-12),
    }


def test_an_empty_source_gets_nothing_from_a_rule():
    for rule in ({"temperature": 2.0}, {"method": "unimax"}, {}):
        assert shares_of({"a": 5, "b": 0}, **rule) == {"a": 1.0, "b": 0.0}


def test_tiny_temperatures_do_not_overflow():
    assert shares_of({"a": 10**12, "b": 10**11}, temperature=1e-4) == {"a": 1.0, "b": 0.0}


def test_what_a_cap_takes_off_is_shared_by_the_same_rule():
    # 100 at 6 : 3 : 1 gives 60, 30, 10. With a capped at 20 the other 80 go 3 : 1, that is 60 and 20.
    weights = {"a": Decimal(6), "b": Decimal(3), "c": Decimal(1)}
    caps = {"a": Decimal(20), "b": UNLIMITED, "c": UNLIMITED}
    filling = water_fill(weights, caps, Decimal(100))
    assert filling.amounts == {"a": 20, "b": 60, "c": 20}
    assert filling.capped == ("a",)


def test_a_cap_may_bind_only_after_another_has():
    # 6 : 3 : 1 of 100 with caps 20 and 50: a is cut to 20, then b would get 60 and is cut to 50, c gets the
    # 30 left.
    weights = {"a": Decimal(6), "b": Decimal(3), "c": Decimal(1)}
    caps = {"a": Decimal(20), "b": Decimal(50), "c": Decimal(90)}
    filling = water_fill(weights, caps, Decimal(100))
    assert filling.amounts == {"a": 20, "b": 50, "c": 30}
    assert filling.capped == ("a", "b")


@given(SIZES, st.integers(1, 10), st.floats(0.01, 1))
def test_unimax_is_the_papers(sizes, epochs, part):
    caps = {source: Decimal(size * epochs) for source, size in sizes.items()}
    weights = weights_of(sizes, method="unimax")
    total = (capacity(weights, caps) * Decimal(str(part))).to_integral_value() + 1
    total = min(total, capacity(weights, caps))
    expected = unimax(sizes, total, epochs)
    found = water_fill(weights, caps, total).amounts
    assert {s: rounded(a, 18) for s, a in found.items()} == {s: rounded(expected[s], 18) for s in found}


@given(SIZES, st.floats(0.1, 50), st.floats(1, 20), st.floats(0.01, 1))
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


@given(SIZES)
def test_a_temperature_of_one_is_natural_and_a_high_one_is_uniform(sizes):
    assert weights_of(sizes, temperature=1.0) == {source: Decimal(size) for source, size in sizes.items()}
    for share in shares_of(sizes, temperature=1e9).values():
        assert share == pytest.approx(1 / len(sizes), abs=1e-6)


@given(SIZES, st.lists(st.floats(0.2, 20), min_size=2, max_size=2).map(sorted))
def test_a_higher_temperature_takes_from_the_largest(sizes, temperatures):
    largest = max(sizes, key=lambda source: sizes[source])
    low, high = (shares_of(sizes, temperature=temperature)[largest] for temperature in temperatures)
    assert high <= low + 1e-11


def test_what_the_method_does_not_read_bears_no_identity():
    assert SamplingParams(method="unimax", temperature=2, weights={"a": 1}) == SamplingParams(method="unimax")
    both = SamplingParams(weights={"a": 1}, temperature=2)
    assert (both.method, both.temperature) == ("weights", 1.0)


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


def test_weights_are_checked_without_the_model_too():
    rule = SamplingParams.model_construct(method="weights", weights={"a": float("nan")}, temperature=1.0)
    with pytest.raises(BalanceError, match=r"weights\.a=nan must be a finite number"):
        raw_weights(rule, {"a": 1}, BalanceError, "balance")


def test_rounding_keeps_significant_digits():
    assert rounded(Decimal("0.0001234567890125")) == Decimal("0.000123456789012")
    assert rounded(Decimal("1234567890123456")) == Decimal("1234567890120000")
