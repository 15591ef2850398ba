"""The mix stage: the plan's rows, the manifest, the accounts, and what a block of the plan holds."""

import hashlib
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.fabricated import encoded_corpus, made, mix_corpus, numbered
from tests.test_tasks.planned import Planned, assert_shares_hold, rows
from tokmill.tasks.core.errors import MixingError, StoreError
from tokmill.tasks.formats.mixture import Mixture
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
