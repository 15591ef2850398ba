"""Mixing's parts: the keyed permutation, drawing to a quota, weaving sources, and requests that cannot be
met."""

import math
import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import MixingError
from tasks.kernels.interleave import interleave
from tasks.mixing.draw import draw, weave
from tasks.mixing.permutation import permutation, permutation_key, permuted
from tasks.mixing.quotas import Request
from tasks.sampling import SamplingParams

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def test_the_order_is_pinned():
    # These literals hold on every machine and version; if they change, every mixture changes.
    assert permutation(10, permutation_key("mix", 0, "english", 0)).tolist() == [7, 6, 2, 4, 1, 5, 0, 9, 3, 8]
    assert permutation(10, permutation_key("mix", 0, "english", 1)).tolist() == [0, 6, 7, 2, 8, 1, 4, 9, 3, 5]


def test_points_far_into_a_billion_are_pinned():
    found = permuted(np.array([0, 1, 999_999_999]), 1_000_000_000, permutation_key("mix", 7, "code", 0))
    assert found.tolist() == [626401834, 858994042, 305190092]


@pytest.mark.parametrize(
    "size", [*range(1, 70), 255, 256, 257, 1024, 5000, 65_536, 65_537, 65_538, 70_000, 300_000]
)
def test_every_index_occurs_once(size):
    assert np.array_equal(np.sort(permutation(size, permutation_key("any", size))), np.arange(size))


@pytest.mark.parametrize("size", [1000, 600_000])
def test_points_equal_the_whole(size):
    key = permutation_key("points")
    positions = np.array([999, 0, 17, size - 1, size // 2])
    assert permuted(positions, size, key).tolist() == permutation(size, key)[positions].tolist()


def test_all_orders_are_about_equally_likely():
    # 24 orders of four things over 24,000 keys: chi-squared with 23 degrees of freedom is below 50 but for p
    # < 0.001.
    orders = Counter(tuple(permutation(4, permutation_key("fair", seed)).tolist()) for seed in range(24_000))
    assert len(orders) == 24
    assert sum((count - 1000) ** 2 / 1000 for count in orders.values()) < 50


def test_neighbours_are_torn_apart():
    # In a random order of n things about one pair stays neighbours in sequence.
    order = permutation(100_000, permutation_key("neighbours"))
    assert np.count_nonzero(np.diff(order) == 1) < 10


def test_keys_do_not_run_into_each_other():
    assert permutation_key("a", "bc") != permutation_key("ab", "c")
    assert permutation_key("a", 1) != permutation_key("a", 11)


def drawn(lengths, quota, most=None, source="s", seed=0):
    most = math.ceil(quota) if most is None else most
    return draw(np.array(lengths, dtype=np.int64), quota, max(most, sum(lengths)), source, seed)


def test_a_draw_stops_nearest_to_its_quota():
    # four documents of 10 tokens: 14 is nearer to 10, 16 to 20, and 15 takes the earlier stop
    assert [drawn([10] * 4, quota).num_tokens for quota in (14, 15, 16, 40)] == [10, 10, 20, 40]


def test_a_draw_never_stops_at_nothing():
    assert drawn([10] * 4, 1).num_tokens == 10
    assert drawn([10] * 4, 0).num_tokens == 0


def test_a_draw_stops_below_its_limit():
    assert drawn([10] * 4, 58, most=58).num_tokens == 50


def test_epochs_come_one_after_the_other_in_orders_of_their_own():
    found = drawn([3, 1, 2, 5, 4], 35, most=45)
    assert found.epochs.tolist()[:10] == [0] * 5 + [1] * 5
    assert sorted(found.documents[:5].tolist()) == sorted(found.documents[5:10].tolist()) == [0, 1, 2, 3, 4]
    assert set(found.epochs.tolist()) == {0, 1, 2}
    orders = {tuple(drawn([1] * 5, 15, most=15, seed=7).documents.reshape(3, 5)[epoch]) for epoch in range(3)}
    assert len(orders) > 1


def test_documents_without_tokens_are_never_drawn():
    assert drawn([0, 4, 0, 4], 16, most=16).documents.tolist().count(1) == 2
    assert set(drawn([0, 4, 0, 4], 16, most=16).documents.tolist()) == {1, 3}


def test_a_larger_quota_continues_the_same_order():
    lengths = list(range(1, 40))
    small, large = drawn(lengths, 100, seed=3).documents, drawn(lengths, 300, seed=3).documents
    assert large[: len(small)].tolist() == small.tolist()


def test_seed_and_source_decide_the_order():
    orders = {
        tuple(drawn([1] * 30, 30, source=source, seed=seed).documents.tolist())
        for source in ("a", "b")
        for seed in (0, 1)
    }
    assert len(orders) == 4


def test_more_epochs_than_can_be_written_are_refused():
    with pytest.raises(MixingError, match="'s' would be drawn 65536 times"):
        drawn([1], 65_536)


@given(LENGTHS, st.integers(0, 3000), st.integers(0, 100))
def test_a_draw_is_within_one_document_of_its_quota(lengths, quota, seed):
    found = drawn(lengths, quota, most=quota, seed=seed)
    assert abs(found.num_tokens - quota) < max(lengths)
    assert found.num_tokens <= max(quota, sum(lengths))
    times = Counter(found.documents.tolist())
    assert max(times.values(), default=0) - min((times[k] for k in range(len(lengths))), default=0) <= 1


def fluid_order(sources):
    """WF²Q in exact fractions: of the documents that have started, the one that finishes first."""
    totals = [sum(lengths) for lengths in sources]
    taken, given_tokens, out, order = [0] * len(sources), [0] * len(sources), 0, []
    for _ in range(sum(map(len, sources))):
        now = Fraction(out, sum(totals))
        ready = [
            (Fraction(given_tokens[i] + lengths[taken[i]], totals[i]), i)
            for i, lengths in enumerate(sources)
            if taken[i] < len(lengths) and Fraction(given_tokens[i], totals[i]) <= now
        ]
        _, best = min(ready)
        length = sources[best][taken[best]]
        out, order = out + length, [*order, best]
        given_tokens[best] += length
        taken[best] += 1
    return order


def woven(sources):
    lengths = np.array([length for lengths in sources for length in lengths], dtype=np.int64)
    return interleave(lengths, np.cumsum([0, *map(len, sources)], dtype=np.int64)).tolist()


def test_weaving_by_hand():
    # Equal documents at 2 : 1. Finishes: a at 1/4, 2/4, 3/4, 1; b at 1/2, 1.
    # t=0: a (1/4). t=1/6: only b has started. t=2/6: a's second (from 1/4). t=3/6: a's third and b's second
    # have started, a finishes first. t=4/6: b; t=5/6: a.
    assert woven([[1, 1, 1, 1], [1, 1]]) == [0, 1, 0, 0, 1, 0]


def test_a_source_without_documents_is_passed_over():
    assert woven([[], [2, 2], [], [4]]) == [1, 3, 1]


@given(st.lists(st.lists(st.integers(1, 30), max_size=15), min_size=1, max_size=5))
def test_weaving_equals_exact_fractions_up_to_ties(sources):
    """Doubles may break a tie the other way; what must hold is the bound, and the counts."""
    order = woven(sources)
    assert Counter(order) == Counter({i: len(lengths) for i, lengths in enumerate(sources) if lengths})
    assert_shares_hold(sources, order)
    assert_shares_hold(sources, fluid_order(sources))


@given(st.lists(st.sampled_from([1, 2, 4]).map(lambda n: [8 // n] * n), min_size=1, max_size=4))
def test_weaving_equals_exact_fractions(sources):
    # Totals of 8 and powers of two: doubles are exact here.
    assert woven(sources) == fluid_order(sources)


def assert_shares_hold(sources, order):
    """At every prefix each source is at most one of its own documents ahead, one of anyone's behind."""
    totals = [sum(lengths) for lengths in sources]
    longest = max((length for lengths in sources for length in lengths), default=0)
    given_tokens, taken = [0] * len(sources), [0] * len(sources)
    for source in order:
        given_tokens[source] += sources[source][taken[source]]
        taken[source] += 1
        for i, total in enumerate(totals):
            ahead = given_tokens[i] - Fraction(total * sum(given_tokens), sum(totals))
            assert -longest <= ahead <= max(sources[i], default=0)


def test_rows_follow_their_source():
    draws = [drawn([5, 6, 7], 18), drawn([9, 9], 18)]
    found = weave(draws)
    for index, given_draw in enumerate(draws):
        mine = found.sources == index
        assert found.documents[mine].tolist() == given_draw.documents.tolist()
        assert found.lengths[mine].tolist() == given_draw.lengths.tolist()


def quotas(sizes, total=None, repetition=1.0, **rule):
    repetitions = repetition if isinstance(repetition, dict) else dict.fromkeys(sizes, repetition)
    return Request(SamplingParams(**rule), sizes, repetitions, total).quotas()


def tokens(found):
    return {source: quota.num_tokens for source, quota in found.items()}


def test_without_a_total_the_first_source_to_run_out_sets_it():
    found = quotas({"a": 900, "b": 100}, weights={"a": 0.5, "b": 0.5}, repetition=2)
    assert tokens(found) == {"a": 200, "b": 200}
    assert [quota.limits for quota in found.values()] == [False, True]
    assert [float(quota.share) for quota in found.values()] == [0.5, 0.5]


def test_proportional_takes_everything_once():
    assert tokens(quotas({"a": 900, "b": 101})) == {"a": 900, "b": 101}


def test_temperature_keeps_its_shares():
    # 3 : 1, and b's 100 tokens once: 300 and 100
    assert tokens(quotas({"a": 900, "b": 100}, temperature=2.0)) == {"a": 300, "b": 100}


def test_unimax_gives_way_to_its_limits():
    # b gives its 400, a the other 600 of 1000
    found = quotas({"a": 900, "b": 100}, method="unimax", repetition=4)
    assert tokens(found) == {"a": 600, "b": 400}
    assert [quota.limits for quota in found.values()] == [False, True]


def test_a_fractional_limit_is_rounded_down():
    assert tokens(quotas({"a": 3}, weights={"a": 1}, repetition=1.5)) == {"a": 4}


def test_a_tiny_share_is_never_rounded_to_nothing():
    found = quotas({"a": 10**6, "b": 10**6}, weights={"a": 1.0, "b": 1e-9}, total=1000)
    assert tokens(found)["b"] == 1


def test_limits_may_differ_by_source():
    found = quotas({"a": 100, "b": 100}, weights={"a": 1, "b": 3}, repetition={"a": 1.0, "b": 2.0})
    assert tokens(found) == {"a": 67, "b": 200}


def test_an_infeasible_request_says_what_would_be_feasible():
    with pytest.raises(MixingError) as raised:
        quotas({"a": 900, "b": 100}, total=1000, weights={"a": 0.5, "b": 0.5})
    assert str(raised.value) == (
        "mix: total_tokens=1000 needs 500 tokens of 'b' (share 0.5), which has 100 and may be drawn 1 times. "
        "Feasible: total_tokens=200 at these shares; or max_repetition of at least b = 5.00 at this total; "
        "or total_tokens=1000 at the nearest weights {a = 900, b = 100}"
    )


def test_more_than_all_text_may_give_says_how_much_that_is():
    with pytest.raises(MixingError, match=r"total_tokens=1000 at the nearest weights {a = 900, b = 100}"):
        quotas({"a": 900, "b": 100}, total=5000, weights={"a": 0.5, "b": 0.5})
    with pytest.raises(MixingError, match="more than max_repetition allows; use at most 2000"):
        quotas({"a": 900, "b": 100}, total=2001, method="unimax", repetition=2)


SIZES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10**9), min_size=2)


@given(SIZES, st.data())
def test_what_is_said_to_be_feasible_is(sizes, data):
    weights = {source: data.draw(st.floats(0.001, 1)) for source in sizes}
    repetition = data.draw(st.floats(1, 5))
    total = data.draw(st.integers(1, 3 * sum(sizes.values())))
    try:
        quotas(sizes, total, repetition, weights=weights)
    except MixingError as error:
        said = str(error)
        largest = int(re.search(r"total_tokens=(\d+) at these shares", said)[1])
        assert largest < total
        if largest:
            quotas(sizes, largest, repetition, weights=weights)
        limits = re.search(r"at least (.*) at this total", said)[1]
        needed = {name: float(times) for name, times in (part.split(" = ") for part in limits.split(", "))}
        quotas(sizes, total, dict.fromkeys(sizes, repetition) | needed, weights=weights)
        found = re.search(r"total_tokens=(\d+) at the nearest weights {(.*)}", said)
        nearest = {
            name: float(amount) for name, amount in (part.split(" = ") for part in found[2].split(", "))
        }
        quotas(sizes, int(found[1]), repetition, weights=nearest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": {"a": 1, "c": 1}}, "weights name an unknown source 'c'"),
        ({"repetition": {"a": 1.0, "x": 2.0}}, "max_repetition name an unknown source 'x'"),
        ({"weights": {"a": 1, "b": 1, "empty": 1}}, "'empty' has a weight but no tokens"),
    ],
)
def test_requests_about_the_wrong_sources_are_refused(arguments, message):
    with pytest.raises(MixingError, match=message):
        quotas({"a": 10, "b": 10, "empty": 0}, **arguments)


def test_nothing_to_mix_is_refused():
    with pytest.raises(MixingError, match="the encoded sources hold no tokens"):
        quotas({"a": 0})
