"""Requests that cannot be met, and what is said to be nearest: against all around it, in exact fractions."""

import re
from fractions import Fraction
from itertools import product
from math import ceil, floor

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.quotas import settle


def quotas(sizes, total=None, repetition=1.0, **rule):
    return settle(MixParams(max_repetition=repetition, total_tokens=total, **rule), sizes).quotas


def tokens(found):
    return {source: quota.num_tokens for source, quota in found.items()}


EVEN = {"weights": {"a": 0.5, "b": 0.5}}


@pytest.mark.parametrize(
    ("sizes", "rule", "wanted", "limiting"),
    [
        # without a total the first source to run out sets it
        ({"a": 900, "b": 100}, {**EVEN, "repetition": 2}, {"a": 200, "b": 200}, ["b"]),
        # 3 : 1, and b's 100 tokens once
        ({"a": 900, "b": 100}, {"temperature": 2.0}, {"a": 300, "b": 100}, ["b"]),
        # b gives its 400, a the other 600 of 1000
        ({"a": 900, "b": 100}, {"method": "unimax", "repetition": 4}, {"a": 600, "b": 400}, ["b"]),
        ({"a": 900, "b": 100}, {"method": "unimax", "total": 150}, {"a": 75, "b": 75}, []),
        # even would be 500 each; a must give 900 of 1000
        (
            {"a": 900, "b": 500},
            {"method": "unimax", "total": 1000, "min_epochs": {"a": 1.0}},
            {"a": 900, "b": 100},
            [],
        ),
        # a tiny share is never rounded to nothing
        ({"a": 10**6, "b": 10**6}, {"weights": {"a": 1, "b": 1e-9}, "total": 1000}, {"a": 1000, "b": 1}, []),
        ({"a": 10**4, "b": 10**4, "c": 10**4}, {"total": 1000}, {"a": 334, "b": 333, "c": 333}, []),
        # a floor for all is one for the sources that are drawn
        ({"a": 100, "b": 100}, {"weights": {"a": 1, "b": 0}, "min_epochs": 0.5}, {"a": 100, "b": 0}, ["a"]),
    ],
)
def test_quotas_by_hand(sizes, rule, wanted, limiting):
    found = quotas(sizes, **rule)
    assert tokens(found) == wanted
    assert [source for source, quota in found.items() if quota.limits] == limiting


EQUAL = {"a": 100, "b": 100}
POINTS = [(0, {"a": 1, "b": 1}), (500, {"a": 1, "b": 3})]


@pytest.mark.parametrize(
    ("sizes", "rule", "facts"),
    [
        (
            {"a": 900, "b": 100},
            {**EVEN, "total": 1000},
            "needs 500 tokens of 'b' .share 0.5., which has 100 .* total_tokens=200 at these shares; or "
            "max_repetition of at least b = 5.00 at this total; or total_tokens=1000 .* {a = 900, b = 100}",
        ),
        (  # at 9 : 1 of 1000 tokens b's 200 are drawn half
            {"a": 1800, "b": 200},
            {"weights": {"a": 9, "b": 1}, "total": 1000, "min_epochs": {"b": 1.0}},
            "min_epochs=1 of 'b' .* 200 tokens .* share of 0.1 of total_tokens=1000 is 100. .*=2000 at these "
            "shares; or min_epochs of at most b = 0.50 at this total; or .*=1000 .* {a = 800, b = 200}",
        ),
        (
            {"a": 200, "b": 900},
            {"schedule": POINTS, "schedule_unit": "tokens"},
            "the 400 tokens .* end before the schedule's last change, at token 500. Feasible: max_repetition "
            "of at least a = 1.26 at total_tokens=501",
        ),
        (
            {"a": 3200, "b": 14400},
            {"schedule": POINTS, "schedule_unit": "steps", "sequence_length": 8, "global_batch_size": 2},
            r"end before the schedule's last change, at step 500 \(token 8000\)",
        ),
        (EQUAL, {"min_epochs": 2.0}, "min_epochs=2 of 'a' must be at most its max_repetition=1"),
        (EQUAL, {"weights": {"a": 1, "b": 0}, "min_epochs": {"b": 0.5}}, "=0.5 of 'b', but its weight is 0"),
        (EQUAL, {"min_epochs": {"x": 1.0}}, "min_epochs name an unknown source 'x'"),
        (
            EQUAL,
            {"method": "unimax", "total": 150, "min_epochs": 1.0},
            "total_tokens=150 is less than min_epochs requires; use at least 200",
        ),
    ],
)
def test_what_cannot_be_met_is_refused_with_what_could(sizes, rule, facts):
    with pytest.raises(MixingError, match=facts):
        quotas(sizes, **rule)


CASES = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(
        st.integers(1, 40),  # tokens
        st.integers(1, 12),  # weight
        st.sampled_from([1.0, 1.1, 1.5, 2.0, 3.0]),  # max_repetition
        st.sampled_from([0.0, 0.0, 0.1, 0.27, 0.5, 1.0]),  # min_epochs
    ),
    min_size=1,
)


def limits(case):
    """Tokens that each source may and must give, by source, from the decimal numbers that were given."""
    most = {source: floor(size * Fraction(str(times))) for source, (size, _, times, _) in case.items()}
    least = {source: ceil(size * Fraction(str(times))) for source, (size, _, _, times) in case.items()}
    return most, least


def refusal(case, total, **changed):
    """What is said of a request; empty if it can be met."""
    columns = ("weights", "max_repetition", "min_epochs")
    given_ = {name: {source: row[k] for source, row in case.items()} for k, name in enumerate(columns, 1)}
    sizes = {source: row[0] for source, row in case.items()}
    try:
        settle(MixParams(**{**given_, **changed}, total_tokens=total), sizes)
    except MixingError as error:
        return str(error)
    return ""


def listed(said, what):
    """What a message gives each source, after some words."""
    found = re.search(rf"{what} ((?:\w = [\d.]+(?:, )?)+)", said)
    pairs = found[1].rstrip(", ").split(", ") if found else []
    return {source: Fraction(number) for source, number in (pair.split(" = ") for pair in pairs)}


@given(CASES, st.integers(1, 150))
@example({"a": (1, 1, 1.0, 0.0), "b": (3, 1, 1.0, 1.0)}, 2)
def test_a_request_is_refused_where_it_cannot_be_met_and_what_is_named_is_nearest(case, total):
    said, (most, least) = refusal(case, total), limits(case)
    weights = sum(weight for _, weight, _, _ in case.values())
    shares = {source: Fraction(total * weight, weights) for source, (_, weight, _, _) in case.items()}
    assert (said == "") == all(least[source] <= share <= most[source] for source, share in shares.items())
    assume(said)

    scales = {source: Fraction(weights, weight) for source, (_, weight, _, _) in case.items()}
    smallest = max(1, *(ceil(least[source] * scale) for source, scale in scales.items()))
    largest = min(floor(most[source] * scale) for source, scale in scales.items())
    found = re.search(r"total_tokens=(\d+) at these shares", said)
    assert (found is None) == (smallest > largest)
    assert found is None or int(found[1]) == min(max(total, smallest), largest)

    raised, lowered = listed(said, "max_repetition of at least"), listed(said, "min_epochs of at most")
    assert raised.keys() == {source for source in case if shares[source] > most[source]}
    assert lowered.keys() == {source for source in case if shares[source] < least[source]}
    for source, limit in raised.items():
        size, share = case[source][0], shares[source]
        assert floor(size * limit) >= share > floor(size * (limit - Fraction(1, 100)))
    for source, limit in lowered.items():
        size, share = case[source][0], shares[source]
        assert ceil(size * limit) <= share < ceil(size * (limit + Fraction(1, 100)))

    found = re.search(r"total_tokens=(\d+) at the nearest weights \{(.*?)\}", said)
    wanted = max(min(total, sum(most.values())), sum(max(1, fewest) for fewest in least.values()))
    tokens = {source: int(k) for source, k in (pair.split(" = ") for pair in found[2].split(", "))}
    assert int(found[1]) == wanted == sum(tokens.values())
    assert all(max(1, least[source]) <= amount <= most[source] for source, amount in tokens.items())
    assert refusal(case, wanted, weights=tokens) == ""
    free = [s for s in case if max(1, least[s]) < tokens[s] < most[s]]
    for one, other in product(free, free):  # each is less than a token away from its part
        assert Fraction(tokens[one] - 1, case[one][1]) < Fraction(tokens[other] + 1, case[other][1])
