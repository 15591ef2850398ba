"""Requests that cannot be met, and what is said to be nearest: against all around it, in exact fractions."""

import re
from fractions import Fraction
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
    ],
)
def test_quotas_by_hand(sizes, rule, wanted, limiting):
    found = quotas(sizes, **rule)
    assert tokens(found) == wanted
    assert [source for source, quota in found.items() if quota.limits] == limiting


def test_an_infeasible_request_says_what_would_be_feasible():
    with pytest.raises(MixingError) as raised:
        quotas({"a": 900, "b": 100}, total=1000, weights={"a": 0.5, "b": 0.5})
    assert str(raised.value) == (
        "mix: total_tokens=1000 needs 500 tokens of 'b' (share 0.5), which has 100 and may be drawn 1 times. "
        "Feasible: total_tokens=200 at these shares; or max_repetition of at least b = 5.00 at this total; "
        "or total_tokens=1000 at the nearest weights {a = 900, b = 100}"
    )


def test_a_source_must_be_drawn_as_often_as_min_epochs_says():
    # at 9 : 1 of 1000 tokens b's 200 are drawn half
    with pytest.raises(MixingError) as raised:
        quotas({"a": 1800, "b": 200}, total=1000, weights={"a": 9, "b": 1}, min_epochs={"b": 1.0})
    problem, feasible = str(raised.value).split(". Feasible: ")
    for fact in ("min_epochs=1 of 'b'", "200 tokens", "total_tokens=1000", "share of 0.1", "100"):
        assert fact in problem
    assert feasible == (
        "total_tokens=2000 at these shares; or min_epochs of at most b = 0.50 at this total; "
        "or total_tokens=1000 at the nearest weights {a = 800, b = 200}"
    )


def test_min_epochs_is_for_the_sources_that_are_drawn():
    found = quotas({"a": 100, "b": 100}, weights={"a": 1, "b": 0}, min_epochs=0.5)
    assert tokens(found) == {"a": 100, "b": 0}
    with pytest.raises(MixingError, match=r"min_epochs=0\.5 of 'b', but its weight is 0"):
        quotas({"a": 100, "b": 100}, weights={"a": 1, "b": 0}, min_epochs={"b": 0.5})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_epochs": 2.0}, "min_epochs=2 of 'a' must be at most its max_repetition=1"),
        ({"min_epochs": {"x": 1.0}}, "min_epochs name an unknown source 'x'"),
        (
            {"method": "unimax", "total": 150, "min_epochs": 1.0},
            "total_tokens=150 .* min_epochs .* at least 200",
        ),
    ],
)
def test_limits_that_cannot_be_met_are_refused(arguments, message):
    with pytest.raises(MixingError, match=message):
        quotas({"a": 100, "b": 100}, **arguments)


def test_a_run_must_reach_the_last_point_of_its_schedule():
    schedule = [(0, {"a": 1, "b": 1}), (500, {"a": 1, "b": 3})]
    with pytest.raises(MixingError) as raised:
        quotas({"a": 200, "b": 900}, schedule=schedule, schedule_unit="tokens")
    assert str(raised.value) == (
        "mix: the 400 tokens that max_repetition allows end before the schedule's last change, at token 500. "
        "Feasible: max_repetition of at least a = 1.26 at total_tokens=501"
    )


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
        settle(
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
