"""Mixtures: permutations, draws, weaving; the plan's rows, the manifest and the accounts."""

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
from tokmill.tasks.mixing.permutation import permutation, permutation_key, permuted
from tokmill.tasks.mixing.sorting import Scratch, sorted_rows
from tokmill.tasks.mixing.stage import MIX, MixParams

LENGTHS = st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=3).filter(
    lambda shards: any(map(any, shards))
)
CORPORA = st.dictionaries(st.sampled_from("abcd"), LENGTHS, min_size=1)


def test_manifest_and_accounts_say_what_was_asked_and_what_came_of_it():
    corpus = {"a": [[10] * 9, [0]], "b": [[10], [5]]}
    planned = Planned(corpus, weights={"a": 0.5, "b": 0.5}, max_repetition=2)
    found = planned.manifest
    assert (found.method, found.num_tokens, found.num_documents) == ("weights", 60, 7)
    a, b = found.sources
    assert (a.requested_share, a.quota_tokens, a.drawn_tokens, a.share, a.limits) == (0.5, 30, 30, 0.5, False)
    assert (b.num_documents, b.num_tokens, b.drawn_documents, b.drawn_tokens) == (2, 15, 4, 30)
    assert (b.unique_documents, b.unique_tokens, b.epochs, b.limits) == (2, 15, 2.0, True)
    became = {(account.source, account.unit): account.became for account in planned.accounts}
    rest = {"repeated": 0, "dropped:empty": 0}
    assert became["a", "tokens"] == {"kept": 30, **rest, "dropped:not_drawn": 60}
    assert became["a", "documents"] == {"kept": 3, "repeated": 0, "dropped:empty": 1, "dropped:not_drawn": 6}
    assert became["b", "tokens"] == {"kept": 15, "repeated": 15, "dropped:empty": 0, "dropped:not_drawn": 0}
    assert planned.accounts[3].added == {"repetition": 15}


@given(
    CORPORA,
    st.sampled_from(
        [
            {"temperature": 2.0, "max_repetition": 2},
            {"temperature": 3.0},
            {"method": "unimax", "max_repetition": 4},
            {"max_repetition": 2.5},
            {"max_repetition": 3.0},
        ]
    ),
    st.integers(0, 50),
    st.sampled_from([1 << 16, 7]),
)
def test_every_mixture_keeps_its_promises(corpus, rule, seed, memory_rows):
    found = Planned(corpus, memory_rows, seed=seed, **rule)
    assert_shares_hold(found)
    assert all(account.balanced for account in found.accounts)
    assert all(amount >= 0 for account in found.accounts for amount in account.became.values())
    for shards, entry in zip(corpus.values(), found.manifest.sources, strict=True):
        longest = max(map(max, filter(None, shards)))
        assert abs(entry.drawn_tokens - entry.quota_tokens) < longest
        assert entry.drawn_tokens <= entry.max_repetition * entry.num_tokens
    for source, shard, document, _, num_tokens in rows(found.plan):
        assert num_tokens == list(corpus.values())[source][shard][document] > 0
    for source, shards in enumerate(corpus.values()):  # each time through a source is a permutation of it
        every = {(s, d) for s, shard in enumerate(shards) for d, length in enumerate(shard) if length}
        mine = [row for row in rows(found.plan) if row[0] == source]
        assert [row[3] for row in mine] == sorted(row[3] for row in mine)
        epochs = [[row[1:3] for row in mine if row[3] == epoch] for epoch in {row[3] for row in mine}]
        assert all(len(set(epoch)) == len(epoch) for epoch in epochs)
        assert all(set(epoch) == every for epoch in epochs[:-1])


def test_a_plan_with_other_columns_is_refused(tmp_path):
    corpus = encoded_corpus(tmp_path, {"a": [numbered([3, 4]), numbered([5])], "b": [numbered([2, 2])]})
    plan = mix_corpus(corpus, tmp_path, seed=3) / "plan.parquet"
    assert rows(Mixture.open(plan.parent).plan()) == rows(
        Planned({"a": [[3, 4], [5]], "b": [[2, 2]]}, seed=3).plan
    )
    pq.write_table(pq.read_table(plan).drop_columns(["epoch"]), plan)
    with pytest.raises(StoreError, match=r"plan\.parquet: columns must be"):
        Mixture.open(plan.parent).plan()


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


@pytest.mark.parametrize(
    ("lengths", "params", "message"),
    [
        ([1 << 32], {}, "'a' has a document of 4294967296 tokens"),
        ([1], {"total_tokens": 65_536, "max_repetition": 1e6}, "'a' would be drawn 65536 times"),
    ],
)
def test_what_a_plan_cannot_write_down_is_refused(lengths, params, message):
    with pytest.raises(MixingError, match=message):
        Planned({"a": [lengths]}, **params)


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


def test_a_source_stops_nearest_to_its_quota_in_an_order_of_its_own():
    # four documents of 10 tokens: 14 is nearer to 10, 16 to 20, and 15 takes the earlier stop
    totals = [Planned({"a": [[10] * 4]}, total_tokens=total) for total in (14, 15, 16, 40)]
    assert [planned.manifest.num_tokens for planned in totals] == [10, 10, 20, 40]
    # a larger quota, more text and other sources continue the same order; another seed or name does not
    long = rows(Planned({"a": [[1] * 40, [1] * 30]}).plan)
    assert rows(Planned({"a": [[1] * 40, [1] * 30]}, total_tokens=20).plan) == long[:20]
    more = rows(Planned({"a": [[1] * 40, [1] * 30, [1] * 50], "b": [[1] * 9]}).plan)
    assert [row for row in more if row[0] == 0 and row[1] < 2] == long
    assert rows(Planned({"b": [[1] * 40, [1] * 30]}).plan) != long
    assert rows(Planned({"a": [[1] * 40, [1] * 30]}, seed=1).plan) != long


def test_the_permutation_is_pinned():
    """These hold on every machine and version; if they change, every mixture and epoch changes."""
    key = permutation_key("mix", 0, "english", 0)
    assert permutation(10, key).tolist() == [7, 6, 2, 4, 1, 5, 0, 9, 3, 8]
    points = permuted(np.array([0, 1, 999_999_999]), 1_000_000_000, permutation_key("mix", 7, "code", 0))
    assert points.tolist() == [626401834, 858994042, 305190092]


@pytest.mark.parametrize("size", [1, 2, 69, 255, 256, 5000, 65_536, 65_537, 300_000])
def test_a_permutation_has_every_index_once_and_tears_neighbours_apart(size):
    key = permutation_key("any", size)
    order = permutation(size, key)
    assert np.array_equal(np.sort(order), np.arange(size))
    assert (
        permuted(np.array([size - 1, size // 2]), size, key).tolist() == order[[size - 1, size // 2]].tolist()
    )
    assert np.count_nonzero(np.diff(order) == 1) < 10  # in a random order about one pair stays together
