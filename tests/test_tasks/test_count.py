"""count: against a plain count with the `regex` package, whole and in shards."""

from collections import Counter

import numpy as np
import pytest
import regex

from tokmill import tokenizer
from tokmill.tasks.core.context import memory_budget, memory_limited_to, quarter_of_the_ram
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Request
from tokmill.tasks.count.counter import DocumentCounter, add_up
from tokmill.tasks.count.stage import COUNT_SHARD, CountParams, run, run_shard
from tokmill.tasks.formats.counts import (
    Counts,
    read_counts,
    read_parts,
    write_counts,
    write_parts,
)
from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tasks.store import Store
from tokmill.tokenizer import PretokenCounts
from tokmill.tokenizer.core.errors import PatternError

DOCUMENTS = {
    "en": ["the cat the hat", "", "don't", "the <|endoftext|>the"],
    "ru": ["кот и кот", "12345 кот"],
}


def plain_counts(texts, pattern="o200k"):
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


def test_a_pattern_that_cuts_vowels_off_is_named_with_source_and_script(tmp_path, text_corpus, caplog):
    corpus = text_corpus({"en": ["plain words"] * 30, "hi": ["सभी मनुष्य जन्म से स्वतन्त्र हैं"] * 30})

    count_all(corpus, CountParams(split_pattern="o200k"), tmp_path / "whole")
    assert not caplog.messages

    count_all(corpus, CountParams(split_pattern="gpt2"), tmp_path / "cut")
    (said,) = caplog.messages
    assert "source hi" in said
    assert "Devanagari" in said


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


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
@pytest.mark.parametrize("num_each", [1, 2, 3])
def test_batches_do_not_matter(tmp_path, num_each, memory_bytes):
    texts = DOCUMENTS["en"]
    counter = DocumentCounter(CountParams().cut, memory_bytes)
    statistics = counter.count(batches_of(texts, num_each), tmp_path / "counts.parquet")
    expected = plain_counts(texts)
    assert read_counts(tmp_path / "counts.parquet").to_dict() == expected
    assert (statistics.num_distinct, statistics.num_pretokens) == (len(expected), sum(expected.values()))
    assert statistics.num_documents == 4
    assert statistics.num_bytes == sum(len(text) for text in texts)
    assert [path.name for path in tmp_path.iterdir()] == ["counts.parquet"]


@pytest.mark.slow
def test_a_tiny_budget_gives_the_same_bytes_and_leaves_nothing_behind(tmp_path, text_corpus):
    texts = [f"line {number} of text, {'ab' * (number % 700)}" for number in range(4000)]
    corpus = text_corpus({"many": texts, "few": ["one two"]})
    outs = {}
    for memory_bytes in (None, 0):
        with memory_limited_to(memory_bytes):
            outs[memory_bytes] = tmp_path / f"out-{memory_bytes}"
            outcome, counts = count_all(corpus, CountParams(), outs[memory_bytes])
        assert counts.counts("many").to_dict() == plain_counts(texts)
        assert all(account.balanced for account in outcome.accounts)
    files = {path.relative_to(outs[None]) for path in outs[None].rglob("*")}
    assert files == {path.relative_to(outs[0]) for path in outs[0].rglob("*")}
    for file in files:
        if (outs[None] / file).is_file():
            assert (outs[None] / file).read_bytes() == (outs[0] / file).read_bytes(), file


def test_a_budget_is_no_part_of_what_an_artifact_is(tmp_path, text_corpus):
    corpus = text_corpus({"en": [f"word{number}" for number in range(3000)]})
    found = []
    for memory_bytes in (None, 0):
        store = Store.open(tmp_path / f"store-{memory_bytes}")
        with memory_limited_to(memory_bytes):
            request = Request(COUNT_SHARD, "en-0", CountParams(), {"shard": corpus.shards[0]})
            found.append(store.realize(request).ref)
    assert found[0] == found[1]


def test_runs_are_gone_after_a_failure(tmp_path):
    def broken():
        yield from batches_of(DOCUMENTS["en"], 1)
        runs = list(tmp_path.rglob("run-*.parquet"))
        assert len(runs) == len(DOCUMENTS["en"])
        raise StoreError("the text is gone")

    with pytest.raises(StoreError, match="the text is gone"):
        DocumentCounter(CountParams().cut, 0).count(broken(), tmp_path / "counts.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
def test_counts_that_are_lost_on_the_way_are_missed(tmp_path, memory_bytes):
    write_counts(tmp_path / "a.parquet", PretokenCounts.from_dict({b"a": 3}))
    with pytest.raises(StoreError, match=r"1 files of counts with 4 pre-tokens .* 3;"):
        add_up([tmp_path / "a.parquet"], tmp_path / "sum.parquet", 4, memory_bytes)


def test_a_sum_that_no_count_holds_is_refused(tmp_path):
    for name in "ab":
        write_counts(tmp_path / f"{name}.parquet", PretokenCounts.from_dict({b"x": 1 << 63}))
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(StoreError, match=r"2 files of counts with 18446744073709551616 .* up to 0"):
        add_up(paths, tmp_path / "sum.parquet", 1 << 64, 0)


def test_parts_do_not_change_the_file(tmp_path):
    counts = PretokenCounts.from_dict({f"{number:07}".encode(): number + 1 for number in range(1500)})
    write_counts(tmp_path / "whole.parquet", counts)
    for rows in (1, 1000, 1499):
        parts = list(read_parts(tmp_path / "whole.parquet", rows))
        assert write_parts(tmp_path / "parts.parquet", parts) == (sum(range(1, 1501)), 1500)
        assert (tmp_path / "whole.parquet").read_bytes() == (tmp_path / "parts.parquet").read_bytes()


def test_parts_that_do_not_increase_are_refused(tmp_path):
    counts = PretokenCounts.from_dict({b"a": 1, b"b": 2})
    write_parts(tmp_path / "a.parquet", [counts, counts])
    for rows in (2, 4):
        with pytest.raises(StoreError, match="must increase"):
            list(read_parts(tmp_path / "a.parquet", rows))


def test_a_budget_is_a_quarter_of_the_memory_unless_it_is_said():
    assert memory_budget() == quarter_of_the_ram() > 0
    with memory_limited_to(7):
        assert memory_budget() == 7
    assert memory_budget() == quarter_of_the_ram()


def test_the_same_counts_are_the_same_bytes_whatever_order_they_came_in(tmp_path):
    parts = [PretokenCounts.from_dict({b"a": 1, bytes([part]): 2, b"zz": part + 1}) for part in range(20)]
    for name, order in (("one", parts), ("two", parts[::-1])):
        write_counts(tmp_path / f"{name}.parquet", PretokenCounts.merge(order))
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
    with pytest.raises(StoreError, match=r"count: the corpus has 2 shards, or 2 .* artifacts of 0"):
        run(CountParams(), out=tmp_path, corpus=corpus.path, shards=[])


def test_a_pattern_that_does_not_parse_is_named(tmp_path, text_corpus):
    corpus = text_corpus(DOCUMENTS)
    with pytest.raises(PatternError):
        run_shard(CountParams(split_pattern="(unclosed"), out=tmp_path, shard=corpus.shard_values[0])


def test_counts_that_are_broken_are_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    with pytest.raises(StoreError, match=r"a\.parquet"):
        read_counts(tmp_path / "a.parquet")
