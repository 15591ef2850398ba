"""Mixtures: permutations, draws, weaving; the plan's rows, the manifest and the accounts."""

import hashlib
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.fabricated import encoded_corpus, made, mix_corpus, numbered
from tests.test_tasks.planned import Planned, assert_shares_hold, rows
from tokmill.tasks.core.errors import MixingError, StoreError
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.mixing.draw import Draw, Stop
from tokmill.tasks.mixing.lengths import SourceLengths
from tokmill.tasks.mixing.permutation import permutation, permutation_key, permuted
from tokmill.tasks.mixing.shuffled import Shuffled
from tokmill.tasks.mixing.sorting import Scratch, sorted_rows
from tokmill.tasks.mixing.stage import MIX, MixParams

LENGTHS = st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=3).filter(
    lambda shards: any(map(any, shards))
)
CORPORA = st.dictionaries(st.sampled_from("abcd"), LENGTHS, min_size=1)


def test_the_plan_is_pinned():
    """If this changes, every mixture changes: raise the stage's version."""
    corpus = {"a": [[5, 3, 8], [1, 9]], "b": [[4, 4]], "c": [[30]]}
    found = Planned(corpus, weights={"a": 2, "b": 1, "c": 1}, max_repetition={"a": 1, "b": 3}, seed=42)
    assert MIX.version == 6
    assert rows(found.plan) == [
        (0, 0, 2, 0, 8),
        (1, 0, 0, 0, 4),
        (2, 0, 0, 0, 30),
        (0, 0, 0, 0, 5),
        (0, 1, 0, 0, 1),
        (1, 0, 1, 0, 4),
        (0, 0, 1, 0, 3),
        (1, 0, 1, 1, 4),
        (0, 1, 1, 0, 9),
    ]


def test_the_manifest_says_what_was_asked_and_what_came_of_it():
    found = Planned(
        {"a": [[10] * 9], "b": [[10], [5]]}, weights={"a": 0.5, "b": 0.5}, max_repetition=2
    ).manifest
    assert (found.method, found.num_tokens, found.num_documents) == ("weights", 60, 7)
    a, b = found.sources
    assert (a.requested_share, a.quota_tokens, a.drawn_tokens, a.share, a.limits) == (0.5, 30, 30, 0.5, False)
    assert (b.num_documents, b.num_tokens, b.drawn_documents, b.drawn_tokens) == (2, 15, 4, 30)
    assert (b.unique_documents, b.unique_tokens, b.epochs, b.limits) == (2, 15, 2.0, True)


def test_the_accounts_say_what_was_repeated_and_left_out():
    found = Planned({"a": [[10] * 9, [0]], "b": [[10], [5]]}, weights={"a": 0.5, "b": 0.5}, max_repetition=2)
    by_key = {(account.source, account.unit): account for account in found.accounts}
    assert by_key["a", "tokens"].became == {
        "kept": 30,
        "repeated": 0,
        "dropped:empty": 0,
        "dropped:not_drawn": 60,
    }
    assert by_key["a", "documents"].became["dropped:empty"] == 1
    assert by_key["b", "tokens"].added == {"repetition": 15}
    assert by_key["b", "tokens"].became == {
        "kept": 15,
        "repeated": 15,
        "dropped:empty": 0,
        "dropped:not_drawn": 0,
    }


@given(
    CORPORA,
    st.sampled_from(
        [{}, {"temperature": 3.0}, {"method": "unimax", "max_repetition": 4}, {"max_repetition": 2.5}]
    ),
    st.integers(0, 50),
)
def test_every_mixture_keeps_its_promises(corpus, rule, seed):
    found = Planned(corpus, seed=seed, **rule)
    assert all(account.balanced for account in found.accounts)
    assert all(amount >= 0 for account in found.accounts for amount in account.became.values())
    for shards, entry in zip(corpus.values(), found.manifest.sources, strict=True):
        longest = max(map(max, filter(None, shards)))
        assert abs(entry.drawn_tokens - entry.quota_tokens) < longest
        assert entry.drawn_tokens <= entry.max_repetition * entry.num_tokens
    times = Counter((source, shard, document) for source, shard, document, _, _ in rows(found.plan))
    for source, shard, document, epoch, num_tokens in rows(found.plan):
        assert num_tokens == list(corpus.values())[source][shard][document] > 0
        assert epoch < times[source, shard, document]


@given(CORPORA, st.integers(0, 50))
def test_shares_hold_at_every_point(corpus, seed):
    assert_shares_hold(Planned(corpus, temperature=2.0, max_repetition=2, seed=seed))


@given(CORPORA, st.integers(0, 50), st.sampled_from([1 << 16, 7]))
def test_every_time_through_a_source_is_a_permutation_of_it(corpus, seed, memory_rows):
    found = rows(Planned(corpus, memory_rows, seed=seed, max_repetition=3.0).plan)
    for source, shards in enumerate(corpus.values()):
        every = [(s, d) for s, shard in enumerate(shards) for d, length in enumerate(shard) if length]
        mine = [row for row in found if row[0] == source]
        assert [row[3] for row in mine] == sorted(list(range(3)) * len(every))
        for epoch in range(3):
            assert sorted(row[1:3] for row in mine if row[3] == epoch) == every


def test_another_source_does_not_reshuffle_the_others():
    alone = Planned({"a": [[1] * 20]})
    together = Planned({"a": [[1] * 20], "b": [[1] * 5]})
    mine = together.plan.source == 0
    assert together.plan.document[mine].tolist() == alone.plan.document.tolist()


def test_the_stage_reads_lengths_and_writes_the_same_bytes_every_time(tmp_path):
    corpus = encoded_corpus(tmp_path, {"a": [numbered([3, 4]), numbered([5])], "b": [numbered([2, 2])]})
    digests = set()
    for attempt in ("first", "second"):
        outcome = made(MIX, MixParams(seed=3), tmp_path / attempt, **corpus.inputs)
        files = sorted(path.name for path in (tmp_path / attempt).iterdir())
        assert files == ["mixture.json", "plan.parquet", "request.parquet", "shares.parquet"]
        digests.add(hashlib.sha256((tmp_path / attempt / "plan.parquet").read_bytes()).hexdigest())
    assert len(digests) == 1
    assert outcome.metrics == {
        "method": "proportional",
        "num_documents": 5,
        "num_tokens": 16,
        "limited_by": "a, b",
        "share.a": 0.75,
        "share.b": 0.25,
    }


def test_the_plan_reads_back(tmp_path):
    corpus = encoded_corpus(tmp_path, {"a": [numbered([3, 4]), numbered([5])], "b": [numbered([2, 2])]})
    mixture = Mixture.open(mix_corpus(corpus, tmp_path, seed=3))
    assert mixture.sources == ["a", "b"]
    assert rows(mixture.plan()) == rows(Planned({"a": [[3, 4], [5]], "b": [[2, 2]]}, seed=3).plan)
    schema = pq.read_schema(mixture.path / "plan.parquet")
    assert [str(field.type) for field in schema] == ["uint16", "uint32", "uint32", "uint16", "uint32"]


def test_a_plan_with_other_columns_is_refused(tmp_path):
    corpus = encoded_corpus(tmp_path, {"a": [numbered([3])]})
    path = mix_corpus(corpus, tmp_path)
    table = pq.read_table(path / "plan.parquet").drop_columns(["epoch"])
    pq.write_table(table, path / "plan.parquet")
    with pytest.raises(StoreError, match=r"plan\.parquet: columns must be"):
        Mixture.open(path).plan()


def test_a_shard_with_other_lengths_than_its_manifest_says_is_refused(tmp_path):
    corpus = encoded_corpus(tmp_path, {"a": [numbered([3, 4]), numbered([5, 6])]})
    (tmp_path / "a-0").rename(tmp_path / "was-0")
    (tmp_path / "a-1").rename(tmp_path / "a-0")
    (tmp_path / "was-0").rename(tmp_path / "a-1")
    with pytest.raises(
        StoreError,
        match=r"mix: shard 0 of 'a' has 2 documents and 11 tokens, its manifest says 2 and 7; verify",
    ):
        made(MIX, MixParams(), tmp_path / "mixture", **corpus.inputs)


def test_a_document_that_is_too_long_to_write_down_is_refused():
    with pytest.raises(MixingError, match="'a' has a document of 4294967296 tokens"):
        Planned({"a": [[1 << 32]]})


QUOTA_LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=30)


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


@given(QUOTA_LENGTHS, st.integers(0, 3000), st.integers(0, 100))
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
