"""count: against a plain count with the `regex` package, whole and in shards."""

from collections import Counter

import numpy as np
import pytest
import regex

import tokenizer
from tasks.count import CountParams, Tally, run, run_shard
from tasks.errors import StoreError
from tasks.formats.corpus import DocumentBatch
from tasks.formats.counts import Counts, merge_bounded, read_counts, write_counts
from tasks.formats.documents import offsets_of
from tokenizer.counting import PretokenCounts
from tokenizer.errors import PatternError

DOCUMENTS = {
    "en": ["the cat the hat", "", "don't", "the <|endoftext|>the"],
    "ru": ["кот и кот", "12345 кот"],
}


def plain_counts(texts, pattern="gpt2"):
    found = Counter()
    for text in texts:
        for part in text.split("<|endoftext|>"):
            found.update(match.encode() for match in regex.findall(tokenizer.SPLIT_PATTERNS[pattern], part))
    return dict(found)


def count_all(corpus, params, out):
    shards = []
    for index, value in enumerate(corpus.shard_values):
        shards.append(out / f"shard-{index}")
        shards[-1].mkdir(parents=True)
        run_shard(params, out=shards[-1], shard=value)
    (out / "counts").mkdir()
    return run(params, out=out / "counts", corpus=corpus.path, shards=shards), Counts.open(out / "counts")


def batches_of(texts, num_each):
    for first in range(0, len(texts), num_each):
        part = [text.encode() for text in texts[first : first + num_each]]
        lengths = np.array([len(text) for text in part], dtype=np.int64)
        ordinals = np.arange(first, first + len(part), dtype=np.int64)
        data = np.frombuffer(b"".join(part), dtype=np.uint8)
        yield DocumentBatch(data, offsets_of(lengths), ordinals)


def test_counts_a_source_equal_a_plain_count(tmp_path, text_corpus):
    outcome, counts = count_all(text_corpus(DOCUMENTS), CountParams(), tmp_path / "out")
    assert counts.sources == ["en", "ru"]
    assert counts.counts("en").to_dict() == plain_counts(DOCUMENTS["en"])
    assert counts.counts("ru").to_dict() == plain_counts(DOCUMENTS["ru"])
    assert counts.counts("en").to_dict()[b" the"] == 1
    assert counts.counts("en").to_dict()[b"the"] == 3
    assert all(account.balanced for account in outcome.accounts)
    assert outcome.metrics["num_documents"] == 6


def test_many_shards_add_up(tmp_path, text_corpus):
    texts = [f"line {number} of text, {'ab' * (number % 7)}" for number in range(20_000)]
    corpus = text_corpus({"many": texts})
    assert len(corpus.shards) > 1
    _, counts = count_all(corpus, CountParams(split_pattern="cl100k"), tmp_path / "out")
    assert counts.counts("many").to_dict() == plain_counts(texts, "cl100k")


def test_digits_and_normalizer_are_applied(tmp_path, text_corpus):
    corpus = text_corpus({"en": ["2024 CAF\u0045\u0301"]})
    params = CountParams(digits="single", normalizer="nfc+lowercase")
    _, counts = count_all(corpus, params, tmp_path / "out")
    found = counts.counts("en").to_dict()
    assert found == {b"2": 2, b"0": 1, b"4": 1, " café".encode(): 1}


def test_a_source_without_documents_has_no_counts(tmp_path, text_corpus):
    _, counts = count_all(text_corpus({"empty": [""]}), CountParams(), tmp_path / "out")
    assert counts.counts("empty").to_dict() == {}


@pytest.mark.parametrize("num_each", [1, 2, 3])
def test_batches_do_not_matter(num_each):
    texts = DOCUMENTS["en"]
    tally = Tally(CountParams().cut)
    counts = tally.count(batches_of(texts, num_each))
    assert counts.to_dict() == plain_counts(texts)
    assert tally.statistics(counts).num_documents == 4
    assert tally.statistics(counts).num_bytes == sum(len(text) for text in texts)


def test_the_same_counts_are_the_same_bytes_whatever_order_they_came_in(tmp_path):
    parts = [PretokenCounts.from_dict({b"a": 1, bytes([part]): 2, b"zz": part + 1}) for part in range(20)]
    for name, order in (("one", parts), ("two", parts[::-1])):
        write_counts(tmp_path / f"{name}.parquet", merge_bounded(order))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert read_counts(tmp_path / "one.parquet").to_dict()[b"zz"] == sum(range(1, 21))


def test_counts_survive_the_disk_whole(tmp_path):
    words = {b"": 1, b"\x00": 2, b"\xff\xfe": 1 << 63, "中".encode(): 5}
    write_counts(tmp_path / "a.parquet", PretokenCounts.from_dict(words))
    assert read_counts(tmp_path / "a.parquet").to_dict() == words


def test_the_order_of_special_tokens_does_not_change_the_cut():
    assert CountParams(special_tokens=("<a>", "<b>")).cut == CountParams(special_tokens=("<b>", "<a>")).cut


def test_a_missing_shard_is_refused(tmp_path, text_corpus):
    corpus = text_corpus(DOCUMENTS)
    with pytest.raises(StoreError, match="count: the corpus has 2 shards and artifacts of 0"):
        run(CountParams(), out=tmp_path, corpus=corpus.path, shards=[])


def test_a_pattern_that_does_not_parse_is_named(tmp_path, text_corpus):
    corpus = text_corpus(DOCUMENTS)
    with pytest.raises(PatternError):
        run_shard(CountParams(split_pattern="(unclosed"), out=tmp_path, shard=corpus.shard_values[0])


def test_counts_that_are_broken_are_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    with pytest.raises(StoreError, match=r"a\.parquet"):
        read_counts(tmp_path / "a.parquet")
