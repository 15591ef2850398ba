"""What is said to be nearest is nearest: against all totals and limits around it, in exact fractions."""

import re
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.quotas import asked

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


def fits(case, total, most, least):
    """Whether every source gives its share of a total within its limits: the definition."""
    weights = sum(weight for _, weight, _, _ in case.values())
    shares = {source: Fraction(total * weight, weights) for source, (_, weight, _, _) in case.items()}
    return all(least[source] <= share <= most[source] for source, share in shares.items())


def refusal(case, total, **changed):
    """What is said of a request; empty if it can be met."""
    columns = ("weights", "max_repetition", "min_epochs")
    given_ = {name: {source: row[k] for source, row in case.items()} for k, name in enumerate(columns, 1)}
    try:
        asked(
            MixParams(**{**given_, **changed}, total_tokens=total),
            {source: row[0] for source, row in case.items()},
        )
    except MixingError as error:
        return str(error)
    return ""


def numbers(text, pattern):
    """`name = number` pairs in the part of a message that follows `pattern`; None if it is not there."""
    found = re.search(pattern + r" ((?:\w+ = [\d.]+(?:, )?)+)", text)
    return found and {
        name: Fraction(value)
        for name, value in (pair.split(" = ") for pair in re.findall(r"\w+ = [\d.]+\d", found[1]))
    }


@given(CASES, st.integers(1, 150))
@example({"a": (1, 1, 1.0, 0.0), "b": (5, 1, 3.0, 0.27)}, 1)
def test_a_request_is_refused_where_and_only_where_it_cannot_be_met(case, total):
    assert (refusal(case, total) == "") == fits(case, total, *limits(case))


@pytest.mark.slow
@given(CASES, st.integers(1, 150))
def test_the_nearest_total_is_nearest(case, total):
    said = refusal(case, total)
    assume(said)
    possible = [near for near in range(1, 500) if fits(case, near, *limits(case))]
    found = re.search(r"total_tokens=(\d+) at these shares", said)
    assert (found is None) == (not possible)
    if found:
        assert abs(int(found[1]) - total) == min(abs(near - total) for near in possible)
        assert int(found[1]) in possible


@given(CASES, st.integers(1, 150))
def test_the_nearest_limits_are_nearest(case, total):
    said = refusal(case, total)
    assume(said)
    most, least = limits(case)
    weights = sum(weight for _, weight, _, _ in case.values())
    for source, (size, weight, times, epochs) in case.items():
        share = Fraction(total * weight, weights)
        raised = (numbers(said, "max_repetition of at least") or {}).get(source)
        lowered = (numbers(said, "min_epochs of at most") or {}).get(source)
        assert (raised is not None) == (share > most[source])
        assert (lowered is not None) == (share < least[source])
        if raised is not None:
            hundredths = next(k for k in range(10**6) if floor(size * Fraction(k, 100)) >= share)
            assert raised == Fraction(hundredths, 100) > Fraction(str(times))
        if lowered is not None:
            hundredths = next(
                k for k in range(int(epochs * 100) + 1, -1, -1) if ceil(size * Fraction(k, 100)) <= share
            )
            assert lowered == Fraction(hundredths, 100) < Fraction(str(epochs))


@given(CASES, st.integers(1, 150))
def test_the_nearest_weights_leave_nobody_out_and_keep_the_proportions_of_the_others(case, total):
    said = refusal(case, total)
    assume(said)
    most, least = limits(case)
    found = re.search(r"total_tokens=(\d+) at the nearest weights \{(.*?)\}", said)
    assert found
    wanted, tokens = (
        int(found[1]),
        {n: int(k) for n, k in (pair.split(" = ") for pair in found[2].split(", "))},
    )
    assert sum(tokens.values()) == wanted
    assert wanted == max(min(total, sum(most.values())), sum(max(1, fewest) for fewest in least.values()))
    assert all(max(1, least[source]) <= amount <= most[source] for source, amount in tokens.items())
    assert refusal(case, wanted, weights=tokens) == ""
    free = [s for s in case if max(1, least[s]) < tokens[s] < most[s]]
    for one in free:
        for other in free:  # each is less than a token away from its part
            level = [(tokens[s] + step) / case[s][1] for s, step in ((one, -1), (other, 1))]
            assert level[0] < level[1]
