"""The strategies on lengths alone: rows by hand, slow packers as oracles, and the laws that hold for all."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tests.test_tasks.fabricated import packed_by
from tests.test_tasks.test_packing import accounts_of
from tokmill.tasks.formats.mixture import Plan
from tokmill.tasks.packing.strategies import blocks, fit

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)
LENGTH = st.integers(1, 25)
LONG = st.sampled_from(["split", "truncate", "drop"])


def rows(pieces):
    """(sequence, start, length, document, document_start) of each piece."""
    columns = (pieces.sequence, pieces.start, pieces.length, pieces.document, pieces.document_start)
    return list(zip(*(column.tolist() for column in columns), strict=True))


# Into 10, longest first: 7 | 6 | 6 ; 4 fills a 6 (best: room 4) ; 3 fills the 7 ; 2 2 go to the other 6.
BY_HAND = [2, 6, 3, 6, 7, 4, 2]


def test_sequences_of_a_window_are_in_the_order_of_their_places():
    # In the order in which they were opened |c 3, e 7|, |a 2, b 6, g 2|, |d 6, f 4| take their tokens number
    # 0, 6 and 2 (of 10: k × 0.618…, without its whole part), which are the plan's tokens 8, 6 and 13.
    assert rows(packed_by("best_fit", BY_HAND, 10)) == [
        (0, 0, 2, 0, 0),
        (0, 2, 6, 1, 0),
        (0, 8, 2, 6, 0),
        (1, 0, 3, 2, 0),
        (1, 3, 7, 4, 0),
        (2, 0, 6, 3, 0),
        (2, 6, 4, 5, 0),
    ]


def spread(drawn):
    """A capacity about which the algorithm changes, and many lengths from 1 to it."""
    capacity, seed = drawn
    return capacity, np.random.default_rng(seed).integers(1, capacity + 1, size=300).tolist()


def slow_concat(lengths, capacity):
    """Token by token."""
    placed, position = {}, 0
    for document, length in enumerate(lengths):
        for token in range(length):
            placed.setdefault((position // capacity, document), []).append((position % capacity, token))
            position += 1
    return [
        (sequence, tokens[0][0], len(tokens), document, tokens[0][1])
        for (sequence, document), tokens in placed.items()
    ]


def slow_greedy(lengths, capacity, long_documents):
    """One document at a time, with an open sequence."""
    found, sequence, used = [], 0, 0
    for document, length in enumerate(lengths):
        if length > capacity and long_documents == "drop":
            continue
        stop = min(length, capacity) if long_documents == "truncate" else length
        for start in range(0, stop, capacity):
            size = min(capacity, stop - start)
            if used + size > capacity:
                sequence, used = sequence + 1, 0
            found.append((sequence, used, size, document, start))
            used += size
    return found


def slow_fit(lengths, capacity, best):
    """Every bin is looked at for every piece; of equal rooms best fit takes the one that changed last."""
    rooms, changed, bins = [], [], [0] * len(lengths)
    for time, piece in enumerate(sorted(range(len(lengths)), key=lambda k: -lengths[k])):
        fitting = [k for k, room in enumerate(rooms) if room >= lengths[piece]]
        if not fitting:
            fitting = [len(rooms)]
            rooms.append(capacity)
            changed.append(-1)
        chosen = min(fitting, key=lambda k: (rooms[k], -changed[k])) if best else fitting[0]
        bins[piece] = chosen
        rooms[chosen] -= lengths[piece]
        changed[chosen] = time
    return bins


@given(LENGTHS, LENGTH, LONG, st.sampled_from(["concat", "greedy"]))
def test_strategies_in_order_equal_token_by_token(lengths, capacity, long_documents, strategy):
    found = rows(packed_by(strategy, lengths, capacity, long_documents))
    is_concat = strategy == "concat"
    assert found == (
        slow_concat(lengths, capacity) if is_concat else slow_greedy(lengths, capacity, long_documents)
    )


@given(
    st.integers(1, 300).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), max_size=60)))
    | st.tuples(st.sampled_from([63, 64, 65, 4096, 4097, 300_000]), st.integers(0, 99)).map(spread)
)
@example((10, BY_HAND))
def test_fitting_equals_looking_at_every_bin(bins):
    capacity, lengths = bins
    for best in (True, False):
        found = fit(np.array(lengths, dtype=np.int64), capacity, best=best).tolist()
        assert found == slow_fit(lengths, capacity, best=best)


@given(
    LENGTHS, LENGTH, LONG, st.sampled_from(["concat", "greedy", "best_fit", "first_fit_decreasing", "pad"])
)
def test_documents_are_accounted_for_and_cut_only_where_they_must_be(
    lengths, capacity, long_documents, strategy
):
    lost_if = "split" if strategy == "concat" else long_documents
    pieces = packed_by(strategy, lengths, capacity, lost_if)
    accounts = accounts_of(lengths, pieces, capacity, lost_if == "drop")
    assert all(account.balanced for account in accounts)
    assert accounts[1].became["packed"] == pieces.num_tokens
    kept = {
        "split": lambda n: n,
        "truncate": lambda n: min(n, capacity),
        "drop": lambda n: n * (n <= capacity),
    }
    assert pieces.num_tokens == sum(map(kept[lost_if], lengths))
    assert np.bincount(pieces.sequence, weights=pieces.length).max(initial=0) <= capacity
    if strategy != "concat":
        num_pieces = np.bincount(pieces.document, minlength=len(lengths)).tolist()
        assert all(num_pieces[k] == 1 for k, length in enumerate(lengths) if length <= capacity)


@given(LENGTHS, LENGTH, st.data())
def test_blocks_do_not_show_where_there_is_no_window(lengths, capacity, data):
    cut = data.draw(st.integers(0, len(lengths)))
    for strategy in ("concat", "greedy", "pad"):
        whole = packed_by(strategy, lengths, capacity)
        assert rows(packed_by(strategy, lengths, capacity, sizes=[cut, len(lengths) - cut])) == rows(whole)


@given(LENGTHS, LENGTH, st.integers(1, 7), st.sampled_from(["best_fit", "first_fit_decreasing"]))
def test_the_order_holds_to_within_the_window(lengths, capacity, window, strategy):
    sizes = [len(lengths[k : k + window]) for k in range(0, len(lengths), window)]
    pieces = packed_by(strategy, lengths, capacity, sizes=sizes)
    of_window = pieces.document // window
    assert (np.diff(of_window) >= 0).all()
    assert np.unique(pieces.sequence).tolist() == list(range(pieces.num_sequences))


def plan_of(num_tokens):
    zeros = np.zeros(len(num_tokens), dtype=np.uint32)
    numbers = np.arange(len(num_tokens), dtype=np.uint32)
    values = {"source": zeros, "shard": zeros, "document": numbers, "epoch": zeros}
    return Plan(**values, num_tokens=np.array(num_tokens, dtype=np.uint32))


@given(LENGTHS, st.integers(1, 9), st.data())
def test_blocks_follow_from_the_documents_alone(num_tokens, window, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(num_tokens)), max_size=3)))
    batches = [plan_of(part) for part in np.split(np.array(num_tokens), cuts)]
    for batch, start in zip(batches, [0, *cuts], strict=True):
        batch.document[:] += start
    found = [block.document.tolist() for block in blocks(batches, window, 10)]
    assert found == [block.document.tolist() for block in blocks([plan_of(num_tokens)], window, 10)]
    assert [k for block in found for k in block] == list(range(len(num_tokens)))
    assert all(len(block) == window for block in found[:-1])


def test_long_documents_end_a_block_early():
    # 700,000 tokens in sequences of 1 are as many pieces; two such documents pass 2^20.
    found = [len(block) for block in blocks([plan_of([700_000] * 5)], 100, 1)]
    assert found == [2, 2, 1]
