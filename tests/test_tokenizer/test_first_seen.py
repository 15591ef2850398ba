"""The tie rule `first_seen`: of the most frequent pairs the one that occurs first, whoever counts them."""

import random
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill import tokenizer
from tokmill.tokenizer import PretokenCounts
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.counting import FirstSeenCounter, count_texts_in_order
from tokmill.tokenizer.merging import trainer
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.reference import byte_bpe as reference
from tokmill.tokenizer.splitting import compile_pattern

Merges = list[tuple[bytes, bytes]]

few_letters = st.dictionaries(
    st.text(alphabet="abc", min_size=1, max_size=14).map(str.encode), st.integers(0, 3), max_size=14
)


def trained(
    counts: dict[bytes, int], num_merges: int, room: int | None = None, max_narrow: int = 300
) -> Merges:
    """Merges of counts in the order of the dictionary."""
    flat = PretokenCounts.from_dict(counts, in_order=False)
    made = BpeTrainer(flat, MergeRules("first_seen"), num_merges, room, max_narrow)
    made.run(num_merges)
    return made.merges()


def as_minbpe_does(chunks: Iterable[bytes], num_merges: int) -> Merges:
    """Train like minbpe: numbers for bytes, a dictionary of pairs filled along the text, `max` over it."""
    ids, token_bytes, merges = [list(chunk) for chunk in chunks], [bytes([i]) for i in range(256)], []
    for new in range(256, 256 + num_merges):
        stats: dict[tuple[int, int], int] = {}
        for chunk in ids:
            for pair in pairwise(chunk):
                stats[pair] = stats.get(pair, 0) + 1
        if not stats:
            break
        left, right = max(stats, key=lambda pair: stats[pair])
        merges.append((token_bytes[left], token_bytes[right]))
        token_bytes.append(token_bytes[left] + token_bytes[right])
        for chunk in ids:
            place = 0
            while place < len(chunk) - 1:
                if (chunk[place], chunk[place + 1]) == (left, right):
                    chunk[place : place + 2] = [new]
                place += 1
    return merges


def test_wikipedias_example() -> None:
    tok = tokenizer.train(["aaabdaaabac"], vocab_size=256 + 3, tie_break="first_seen")

    assert tok.merges == [(b"a", b"a"), (b"aa", b"a"), (b"aaa", b"b")]  # XdXac
    assert [tok.token_bytes(i) for i in tok.encode("aaabdaaabac")] == [b"aaab", b"d", b"aaab", b"a", b"c"]


def test_the_earliest_pretoken_wins_then_the_leftmost_pair() -> None:
    assert trained({b"yz": 1, b"zab": 1}, 3) == [(b"y", b"z"), (b"z", b"a"), (b"za", b"b")]
    assert trained({b"zab": 1, b"yz": 1}, 3) == [(b"z", b"a"), (b"za", b"b"), (b"y", b"z")]


def test_first_is_meant_in_the_words_as_merged_so_far() -> None:
    # (b, c) stood before (c, d), but once ab is joined its first place is in the last pre-token
    counts = {b"abc": 1, b"cd": 2, b"ab": 4, b"bc": 1, b"xbc": 1}
    assert trained(counts, 3) == [(b"a", b"b"), (b"c", b"d"), (b"b", b"c")]


def test_a_pretoken_that_does_not_occur_is_not_first() -> None:
    assert trained({b"xy": 0, b"ab": 1, b"xyz": 1}, 1) == [(b"a", b"b")]


@given(few_letters, st.integers(0, 40), st.sampled_from([None, 1, 5]), st.sampled_from([256, 258, 300]))
def test_merges_are_those_of_the_reference(
    counts: dict[bytes, int], num_merges: int, room: int | None, max_narrow: int
) -> None:
    expected = reference.train_merges(counts, num_merges, tie_break="first_seen")
    assert trained(counts, num_merges, room, max_narrow) == expected


@pytest.mark.parametrize("buckets", [1, 4, 256])
@pytest.mark.parametrize("room", [1, 40, None])
def test_few_buckets_and_many_rounds_make_the_same_merges(
    buckets: int, room: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "_num_buckets", lambda _num_cells: buckets)
    monkeypatch.setattr(trainer, "_LEAST_ROOM", 1)
    shuffler = random.Random(buckets)
    words = {bytes(shuffler.choices(b"abcdef", k=shuffler.randint(2, 14))): i % 4 for i in range(250)}
    assert trained(words, 250, room, 280) == reference.train_merges(words, 250, tie_break="first_seen")


@given(st.lists(st.text(alphabet="ab c", max_size=30), max_size=8), st.integers(0, 30))
def test_merges_are_those_of_minbpe(texts: list[str], num_merges: int) -> None:
    splitter = compile_pattern("gpt2")
    data, offsets = buffers.pack(texts)
    found = splitter.split(data, offsets)
    chunks = [data[start:end].tobytes() for start, end in zip(found.starts, found.ends, strict=True)]
    expected = as_minbpe_does(chunks, num_merges)

    tok = tokenizer.train(texts, vocab_size=256 + len(expected), tie_break="first_seen")
    assert tok.merges == expected


@given(few_letters, st.integers(0, 20), st.integers(0, 20))
def test_a_shorter_training_is_a_prefix(counts: dict[bytes, int], shorter: int, more: int) -> None:
    assert trained(counts, shorter) == trained(counts, shorter + more)[:shorter]


def random_texts(number: int) -> list[str]:
    """So many words that several parts are counted, each word in few texts."""
    dice = random.Random(number)
    return [
        " ".join("".join(dice.choices("abcdefghij", k=dice.randint(1, 24))) for _ in range(40))
        for _ in range(number)
    ]


@pytest.mark.parametrize("num_threads", [2, 3, 8])
def test_threads_change_no_training(num_threads: int) -> None:
    texts = random_texts(2000)
    options = {"vocab_size": 600, "tie_break": "first_seen"}
    assert tokenizer.train(texts, num_threads=num_threads, **options) == tokenizer.train(texts, **options)
    words = dict.fromkeys(" ".join(texts[:3]).split())
    counter = count_texts_in_order(texts, compile_pattern(r"\S+|\s+"), num_threads=num_threads)
    counted = [word.decode() for word in counter.take(in_order=False).to_dict() if word.strip()]
    assert counted[: len(words)] == list(words)


@pytest.mark.parametrize("length", [1, 15, 16, 300])
def test_a_counter_keeps_the_order_while_its_tables_grow(length: int) -> None:
    numbers = [*range(0, 5000, 7), *range(5000), *range(100)]
    strings = [number.to_bytes(2, "little").ljust(length, b"x")[:length] for number in numbers]
    counter = FirstSeenCounter()
    for some in (strings[:50], strings[50:]):
        data, offsets = buffers.pack_bytes(some)
        counter.add(data, offsets[:-1], offsets[1:], np.full(len(some), 3, np.uint64))

    found = counter.take(in_order=False)
    expected = dict.fromkeys(strings, 0)
    for string in strings:
        expected[string] += 3
    assert list(found.to_dict().items()) == list(expected.items())
    assert len(counter.take(in_order=False)) == 0


def test_counts_of_pretokens_are_sorted_whatever_the_rule() -> None:
    texts = ["b a", "c"]
    counts = tokenizer.count_pretokens(texts, tie_break="first_seen")
    assert list(counts.to_dict()) == [b" a", b"b", b"c"]


def test_a_mapping_is_taken_in_its_order() -> None:
    for words in ([b"xy", b"ab"], [b"ab", b"xy"]):
        counts = dict.fromkeys(words, 1)
        tok = tokenizer.train_from_counts(counts, vocab_size=257, tie_break="first_seen")
        assert tok.merges == [(words[0][:1], words[0][1:])]
    ordered = tokenizer.train_from_counts(
        PretokenCounts.from_dict({b"xy": 1, b"ab": 1}), vocab_size=257, tie_break="first_seen"
    )
    assert ordered.merges == [(b"a", b"b")]
