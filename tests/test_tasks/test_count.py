"""count: against a plain count with the regex package, in shards, and merged in bounded memory."""

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.test_encode import batches_of
from tokmill import tokenizer
from tokmill.tasks.core.context import memory_limited_to
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Request
from tokmill.tasks.count.counter import DocumentCounter, add_up
from tokmill.tasks.count.merging import FAN_IN, MOST_LEVELS, level_of, merge_streams, parts_of
from tokmill.tasks.count.stage import COUNT_SHARD, CountParams, MergeParams, run, run_shard
from tokmill.tasks.count.stage import run_merge as merge
from tokmill.tasks.formats import counts as counts_on_disk
from tokmill.tasks.formats.counts import (
    COUNTS_FILE,
    Counts,
    CountsStatistics,
    read_counts,
    read_parts,
    write_counts,
    write_parts,
)
from tokmill.tasks.store import Store
from tokmill.tokenizer import PretokenCounts

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


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
@pytest.mark.parametrize("num_each", [1, 3])
def test_counts_equal_a_plain_count_whatever_the_batches_and_the_memory(
    tmp_path, text_corpus, num_each, memory_bytes
):
    with memory_limited_to(memory_bytes):
        outcome, counts = count_all(text_corpus(DOCUMENTS), CountParams(), tmp_path / "out")
    assert counts.sources == ["en", "ru"]
    for source, texts in DOCUMENTS.items():
        expected = plain_counts(texts)
        assert counts.counts(source).to_dict() == expected
        (tmp_path / source).mkdir()
        counter = DocumentCounter(CountParams().cut, memory_bytes)
        statistics = counter.count(batches_of(texts, num_each), tmp_path / source / "counts.parquet")
        assert read_counts(tmp_path / source / "counts.parquet").to_dict() == expected
        assert (statistics.num_distinct, statistics.num_pretokens) == (len(expected), sum(expected.values()))
        assert statistics.num_bytes == sum(len(text.encode()) for text in texts)
        assert [path.name for path in (tmp_path / source).iterdir()] == ["counts.parquet"]
    assert counts.counts("en").to_dict()[b"the"] == 3
    assert all(account.balanced for account in outcome.accounts)
    assert outcome.metrics["num_documents"] == 6


def test_digits_and_normalizer_are_applied(tmp_path, text_corpus):
    corpus = text_corpus({"en": ["2024 CAF\u0045\u0301"]})
    params = CountParams(digits="single", normalizer="nfc+lowercase")
    _, counts = count_all(corpus, params, tmp_path / "out")
    found = counts.counts("en").to_dict()
    assert found == {b"2": 2, b"0": 1, b"4": 1, " café".encode(): 1}


def test_a_pattern_that_cuts_vowels_off_is_named_with_source_and_script(tmp_path, text_corpus, caplog):
    corpus = text_corpus({"en": ["plain words"] * 30, "hi": ["सभी मनुष्य जन्म से स्वतन्त्र हैं"] * 30})

    count_all(corpus, CountParams(split_pattern="o200k"), tmp_path / "whole")
    assert not caplog.messages

    count_all(corpus, CountParams(split_pattern="gpt2"), tmp_path / "cut")
    (said,) = caplog.messages
    assert "source hi" in said
    assert "Devanagari" in said


def test_a_budget_is_no_part_of_what_an_artifact_is(tmp_path, text_corpus):
    corpus = text_corpus({"en": [f"word{number}" for number in range(3000)]})
    found = []
    for memory_bytes in (None, 0):
        store = Store.open(tmp_path / f"store-{memory_bytes}")
        with memory_limited_to(memory_bytes):
            request = Request(COUNT_SHARD, "en-0", CountParams(), {"shard": corpus.shards[0]})
            found.append(store.realize(request).ref)
    assert found[0] == found[1]


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
def test_counts_that_are_lost_on_the_way_are_missed(tmp_path, memory_bytes):
    write_counts(tmp_path / "a.parquet", PretokenCounts.from_dict({b"a": 3}))
    with pytest.raises(StoreError, match=r"1 files of counts with 4 pre-tokens .* 3;"):
        add_up([tmp_path / "a.parquet"], tmp_path / "sum.parquet", 4, memory_bytes)


def test_a_missing_shard_is_refused(tmp_path, text_corpus):
    corpus = text_corpus(DOCUMENTS)
    with pytest.raises(StoreError, match=r"count: the corpus has 2 shards, or 2 .* artifacts of 0"):
        run(CountParams(), out=tmp_path, corpus=corpus.path, shards=[])


PRETOKENS = st.dictionaries(st.binary(max_size=4), st.integers(1, 1 << 40), max_size=40)
CHECKOUT = Path(__file__).parents[2]
PEAK = """
import sys
from itertools import pairwise
from pathlib import Path
from tests.peak import peak_bytes
from tokmill.tasks.count.counter import add_up
file, number, num_pretokens, memory_bytes = Path(sys.argv[1]), *map(int, sys.argv[2:])
add_up([file] * number, file.with_name("sum.parquet"), num_pretokens, memory_bytes)
print(peak_bytes())
"""


def blocks_of(counts: PretokenCounts, ends: list[int]) -> list[PretokenCounts]:
    """Counts in blocks that end there; some are empty."""
    bounds = [0, *sorted(min(end, len(counts)) for end in ends), len(counts)]
    return [
        PretokenCounts(
            counts.data[counts.offsets[first] : counts.offsets[end]],
            counts.offsets[first : end + 1] - counts.offsets[first],
            counts.counts[first:end],
        )
        for first, end in pairwise(bounds)
    ]


@given(st.lists(st.tuples(PRETOKENS, st.lists(st.integers(0, 40), max_size=5)), max_size=6))
def test_blocks_do_not_change_a_sum(streams: list[tuple[dict[bytes, int], list[int]]]) -> None:
    given_blocks = [blocks_of(PretokenCounts.from_dict(words), ends) for words, ends in streams]
    found: list[tuple[bytes, int]] = []
    for part in merge_streams(given_blocks):
        found += part.to_dict().items()
    expected: Counter[bytes] = Counter()
    for words, _ in streams:
        expected.update(words)
    assert found == sorted(expected.items())


@given(st.integers(0, 3 * FAN_IN**3))
def test_a_tree_has_every_shard_once_and_in_order(num_shards: int) -> None:
    for level in range(MOST_LEVELS):
        groups = level_of(num_shards, level)
        assert [part for group in groups for part in group] == parts_of(num_shards, level)
        assert all(len(group) <= FAN_IN for group in groups)
    parts = parts_of(num_shards)
    assert [shard for part in parts for shard in part] == list(range(num_shards))
    assert len(parts) <= FAN_IN


def write_shard(folder: Path, words: dict[bytes, int]) -> Path:
    folder.mkdir()
    totals = write_counts(folder / COUNTS_FILE, PretokenCounts.from_dict(words))
    statistics = CountsStatistics(num_documents=2, num_bytes=5, **totals._asdict())
    statistics.save(folder)
    return folder


@pytest.mark.parametrize(
    "number", [1, 2, FAN_IN - 1, FAN_IN, FAN_IN + 1, pytest.param(FAN_IN**2 + 1, marks=pytest.mark.slow)]
)
def test_files_add_up_to_the_same_bytes_whatever_the_memory(tmp_path: Path, number: int) -> None:
    words = [
        {f"{index * 37 % 5000}".encode(): 1, bytes([index % 251]) * 9: 3, b"": index + 1}
        for index in range(number)
    ]
    paths = [tmp_path / f"{index}.parquet" for index in range(number)]
    for path, counts in zip(paths, words, strict=True):
        write_counts(path, PretokenCounts.from_dict(counts))
    expected: Counter[bytes] = Counter()
    for counts in words:
        expected.update(counts)
    write_counts(tmp_path / "expected", PretokenCounts.from_dict(expected))
    for memory_bytes in (0, 1 << 30):
        add_up(paths, tmp_path / "sum", expected.total(), memory_bytes)
        assert (tmp_path / "sum").read_bytes() == (tmp_path / "expected").read_bytes()
    assert not list(tmp_path.glob(".sums-*"))


def test_merged_shards_are_a_shard(tmp_path: Path) -> None:
    shards = [write_shard(tmp_path / "a", {b"x": 1, b"y": 2}), write_shard(tmp_path / "b", {b"y": 5})]
    (tmp_path / "out").mkdir()
    outcome = merge(MergeParams(), out=tmp_path / "out", shards=shards)
    assert read_counts(tmp_path / "out" / COUNTS_FILE).to_dict() == {b"x": 1, b"y": 7}
    assert outcome.metrics == {"num_documents": 4, "num_bytes": 10, "num_pretokens": 8, "num_distinct": 2}
    assert all(account.balanced for account in outcome.accounts)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    def peak(num_words: int, num_files: int) -> int:
        words = {f"{word * 7919:012}".encode(): 1 for word in range(num_words)}
        write_counts(tmp_path / "a.parquet", PretokenCounts.from_dict(words))
        numbers = [num_files, num_files * num_words, 16 << 20]
        command = [sys.executable, "-c", PEAK, str(tmp_path / "a.parquet"), *map(str, numbers)]
        return int(subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout)

    few, many = peak(200_000, 2), peak(1_000_000, FAN_IN)
    assert many - few < 160 << 20  # 32 million counts take more than 800 MiB


def test_reading_may_begin_at_any_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_on_disk, "_ROW_GROUP", 8)
    path, words = tmp_path / "a.parquet", {f"{number:02}".encode(): number + 1 for number in range(27)}
    write_parts(path, [PretokenCounts.from_dict(words)])
    whole = [part.to_dict() for part in read_parts(path, 4)]
    assert [len(part) for part in whole] == [4, 4, 4, 4, 4, 4, 3]
    for first in range(8):
        assert [part.to_dict() for part in read_parts(path, 4, first)] == whole[first:]


@pytest.mark.parametrize("words", [{b"a": 1, b"b": 2}, {b"a": 1}])
def test_parts_that_do_not_increase_are_refused(tmp_path, words):
    counts = PretokenCounts.from_dict(words)
    write_parts(tmp_path / "a.parquet", [counts, counts])
    for rows in (2, 4):
        with pytest.raises(StoreError, match="must increase"):
            list(read_parts(tmp_path / "a.parquet", rows))
