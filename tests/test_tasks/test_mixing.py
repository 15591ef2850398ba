"""Mixing's parts: the keyed permutation, sorting on disk, drawing to a quota, weaving sources."""

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.planned import Planned, rows
from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.draw import Draw, Stop
from tokmill.tasks.mixing.lengths import SourceLengths
from tokmill.tasks.mixing.permutation import permutation, permutation_key, permuted
from tokmill.tasks.mixing.shuffled import Shuffled
from tokmill.tasks.mixing.sorting import Scratch, sorted_rows

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def test_the_order_is_pinned():
    # These literals hold on every machine and version; if they change, every mixture changes.
    assert permutation(10, permutation_key("mix", 0, "english", 0)).tolist() == [7, 6, 2, 4, 1, 5, 0, 9, 3, 8]
    assert permutation(10, permutation_key("mix", 0, "english", 1)).tolist() == [0, 6, 7, 2, 8, 1, 4, 9, 3, 5]


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


def test_keys_do_not_run_into_each_other():
    assert permutation_key("a", "bc") != permutation_key("ab", "c")
    assert permutation_key("a", 1) != permutation_key("a", 11)


class Given:
    """What a source gives, whole: its documents, their epochs and lengths."""

    def __init__(self, lengths, quota, most=None, source="s", seed=0, memory_rows=1 << 16):
        limit = max(math.ceil(quota) if most is None else most, sum(lengths))
        with TemporaryDirectory() as folder:
            scratch = Scratch(Path(folder), memory_rows, memory_rows)
            own = SourceLengths.of_arrays([np.array(lengths, dtype=np.int64)])
            draw = Draw(Shuffled(source, own, seed, scratch), Stop(quota, limit))
            blocks = list(draw.blocks())
        self.documents = np.array([d for block in blocks for d in block.rows["document"]], dtype=np.int64)
        self.lengths = np.array([n for block in blocks for n in block.rows["num_tokens"]], dtype=np.int64)
        self.epochs = np.array([epoch for block in blocks for epoch in block.epochs], dtype=np.int64)
        self.num_tokens = int(self.lengths.sum())
        self.drawn = draw.drawn


drawn = Given


def test_a_draw_stops_nearest_to_its_quota():
    # four documents of 10 tokens: 14 is nearer to 10, 16 to 20, and 15 takes the earlier stop
    assert [drawn([10] * 4, quota).num_tokens for quota in (14, 15, 16, 40)] == [10, 10, 20, 40]


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
    """The order of sources whose documents are given here, each source's share as large as it is."""
    corpus = {str(k): [[length] for length in lengths] or [[]] for k, lengths in enumerate(sources)}
    return Planned(corpus).plan.source.tolist()


def test_weaving_by_hand():
    # Equal documents at 2 : 1. Finishes: a at 1/4, 2/4, 3/4, 1; b at 1/2, 1.
    # t=0: a (1/4). t=1/6: only b has started. t=2/6: a's second (from 1/4). t=3/6: a's third and b's second
    # have started, a finishes first. t=4/6: b; t=5/6: a.
    assert woven([[1, 1, 1, 1], [1, 1]]) == [0, 1, 0, 0, 1, 0]


@given(st.lists(st.sampled_from([1, 2, 4]).map(lambda n: [8 // n] * n), min_size=1, max_size=4))
def test_weaving_equals_exact_fractions(sources):
    assert woven(sources) == fluid_order(sources)


ROW = np.dtype([("key", "<u8"), ("value", "<u4")])


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 20), st.integers(1, 9))
def test_sorting_on_disk_keeps_the_order_of_equal_keys(keys, memory_rows, kept_rows):
    rows = np.array([(key, value) for value, key in enumerate(keys)], dtype=ROW)
    with TemporaryDirectory() as folder:
        scratch = Scratch(Path(folder), memory_rows, kept_rows)
        found = [row.tolist() for block in sorted_rows([rows], scratch) for row in block]
    assert found == sorted(zip(keys, range(len(keys)), strict=True))


@pytest.mark.parametrize("kept_rows", [40, 200])
def test_what_many_sources_hold_in_memory_is_bounded_together(tmp_path, kept_rows):
    rows = np.zeros(3000, dtype=ROW)
    rows["key"] = np.random.default_rng(0).permutation(3000)
    blocks = sorted_rows([rows], Scratch(tmp_path, 1000, kept_rows))
    next(blocks)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 3000 * ROW.itemsize
    largest = max(len(block) for block in blocks)
    assert largest <= kept_rows


def test_a_mixture_does_not_depend_on_how_much_fits_in_memory():
    random = np.random.default_rng(1)
    corpus = {"a": [random.integers(0, 50, 300).tolist()] * 3, "b": [random.integers(1, 9, 40).tolist()]}
    plans = [
        rows(Planned(corpus, memory_rows, temperature=2.0, max_repetition=3.0).plan)
        for memory_rows in (1 << 16, 100, 7)
    ]
    assert plans[0] == plans[1] == plans[2]


def test_text_that_is_added_does_not_reshuffle_what_was_there():
    before = rows(Planned({"a": [[1] * 40, [1] * 30]}).plan)
    after = rows(Planned({"a": [[1] * 40, [1] * 30, [1] * 50]}).plan)
    assert [row for row in after if row[1] < 2] == before
