"""Counting pre-tokens and words against Python's own containers."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import any_text
from tokmill.tokenizer import PretokenCounts, counting
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.counting import PretokenCounter, count_buffers
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.splitting.splitter import Pretokens, words_of

GPT2 = compile_pattern("gpt2")


def counted(texts: list[str], **how: object) -> dict[bytes, int]:
    return count_buffers(*buffers.pack(texts), GPT2, **how).to_dict()


def test_counts_by_hand():
    assert counted(["a b a", " b\n"]) == {b"\n": 1, b" a": 1, b" b": 2, b"a": 1}


def test_special_tokens_are_not_normalized():
    once = dict.fromkeys((b"a", b"b", b"<", b"s", b">"), 1)
    assert counted(["A<S>B<s>"], specials=["<S>"], normalizer="lowercase") == once
    assert counted(["a<s>b <s>"], specials=["<s>"]) == {b" ": 1, b"a": 1, b"b": 1}


@given(st.lists(any_text(), max_size=6))
def test_counts_are_those_of_a_counter_in_order_of_bytes(texts):
    expected = Counter(piece.encode() for text in texts for piece in GPT2.split_text(text))
    found = counted(texts)
    assert found == expected
    assert list(found) == sorted(expected)


@given(st.lists(st.dictionaries(st.binary(max_size=12), st.integers(1, 2**60), max_size=12), max_size=5))
def test_merging_adds_up(many):
    total: Counter[bytes] = Counter()
    for counts in many:
        total.update(counts)
    merged = PretokenCounts.merge([PretokenCounts.from_dict(counts) for counts in many])
    assert list(merged.to_dict().items()) == sorted(total.items())


@pytest.mark.parametrize("length", [1, 8, 9, 15, 16, 17, 300])
def test_tables_grow_with_distinct_strings_of_any_length(length):
    strings = [number.to_bytes(4, "little").ljust(length, b"x")[:length] for number in range(5000)]
    data, offsets = buffers.pack_bytes(strings)
    counter = PretokenCounter()
    for _ in range(2):
        counter.add(data, offsets[:-1], offsets[1:])
    assert counter.counts().to_dict() == dict(sorted((Counter(strings) + Counter(strings)).items()))
    assert len(counter) == len(set(strings))


@pytest.mark.parametrize("size", [1, 31, 32, 33])
def test_where_slices_end_changes_no_count(size, monkeypatch):
    monkeypatch.setattr(counting, "_STRINGS_A_SLICE", size)
    strings = [str(number % 900).encode() * (1 + number % 3) for number in range(3000)]
    data, offsets = buffers.pack_bytes(strings)
    for weights in (np.zeros(0, np.uint64), np.full(3000, 2, np.uint64)):
        counter = PretokenCounter()
        counter.add(data, offsets[:-1], offsets[1:], weights)
        times = 2 if len(weights) else 1
        assert counter.counts().to_dict() == {k: times * n for k, n in sorted(Counter(strings).items())}


def test_taking_the_counts_gives_their_memory_back():
    strings = [number.to_bytes(20, "big") for number in range(5000)]
    data, offsets = buffers.pack_bytes(strings)
    counter = PretokenCounter()
    empty = counter.num_bytes
    for in_order in (True, False):
        counter.add(data, offsets[:-1], offsets[1:])
        assert counter.num_bytes > empty + len(data)
        found = counter.take(in_order=in_order)
        assert sorted(found.to_dict().items()) == [(string, 1) for string in strings]
        assert (len(counter), counter.num_bytes) == (0, empty)


@pytest.mark.parametrize("num_threads", [2, 5])
def test_threads_change_no_count(num_threads):
    texts = [f"{number} of many, {'ab' * (number % 50)}<s> " * 60 for number in range(3000)]
    data, offsets = buffers.pack(["", *texts, ""])
    one = count_buffers(data, offsets, GPT2, ["<s>"])
    many = count_buffers(data, offsets, GPT2, ["<s>"], num_threads=num_threads)
    for name in ("data", "offsets", "counts"):
        assert np.array_equal(getattr(one, name), getattr(many, name))


@given(
    st.lists(st.text(alphabet="\x00\x01a", max_size=40).map(str.encode), min_size=13, max_size=300),
    st.integers(0, 30),
)
def test_strings_are_sorted_as_python_sorts_them(strings, shared):
    data, offsets = buffers.pack_bytes([b"x" * shared + string for string in strings])
    found = PretokenCounts.sorted(data, offsets, np.ones(len(strings), np.uint64)).to_dict()
    expected = Counter(b"x" * shared + string for string in strings)
    assert list(found.items()) == sorted(expected.items())


@given(
    parts=st.lists(st.text("ab!~\x1f \t\n\x85\xa0é\u1680\u2003\u200b\u2028\u3000今", max_size=12), max_size=6)
)
def test_words_are_what_lies_between_white_space(parts):
    data, cuts = pack_bytes([part.encode() for part in parts])
    words = words_of(data, Pretokens(cuts[:-1], cuts[1:], np.arange(len(parts) + 1)))

    found = [data[i:j].tobytes().decode() for i, j in zip(words.starts, words.ends, strict=True)]
    # what str.split() has beyond White_Space is left out of the alphabet, but for U+001F
    split = [part.replace("\x1f", "X").split() for part in parts]
    assert [word.replace("\x1f", "X") for word in found] == [word for each in split for word in each]
    assert words.offsets.tolist() == np.cumsum([0, *map(len, split)]).tolist()
