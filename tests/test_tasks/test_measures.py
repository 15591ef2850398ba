"""Characters, words and UTF-8, against Python's own on every document."""

from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tasks.formats.text.documents import (
    DocumentBatch,
    documents_of,
    file_batch,
    is_utf8,
    without_invalid_utf8,
)
from tokmill.tasks.formats.text.shard import batched
from tokmill.tasks.kernels.text_size import text_size

ODD = "a b\t\n\v\f\r\x1c\x1f\u00e9\u2028\u00a0\u0085\u1680\u2003\u200b\u205f\u3000\u3001\U0001f600"
WORD = regex.compile(r"\P{White_Space}+")


def buffers(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    piece = file_batch(texts, np.arange(len(texts)))
    return piece.data, piece.offsets


@pytest.mark.parametrize(
    ("texts", "chars", "words"),
    [
        ([], 0, 0),
        (["", ""], 0, 0),
        (["two words"], 9, 2),
        (["ab", "cd"], 4, 2),  # two documents are two words, though their bytes touch
        (["ab ", " cd", "", "e"], 7, 3),
        (["\n\t x \r\n"], 7, 1),
        (["naïve 日本"], 8, 2),
        (["a\u00a0b\u2028c"], 5, 3),
        (["吾輩は\u3000猫である", "\u3000名前\u3000は\u3000\u3000", "\u3000"], 16, 4),
        (["a\u200bb\u180ec\ufeffd\x1ce"], 9, 1),  # look like white space, but do not have the property
        (["a \u00a0 b", "\u00a0", "c\u0085", "d"], 9, 4),
    ],
)
def test_by_hand(texts: list[str], chars: int, words: int) -> None:
    data, offsets = buffers([text.encode() for text in texts])

    assert text_size(data, offsets) == (len(texts), len(data), chars, words)


@given(st.lists(st.text(alphabet=ODD, max_size=12), max_size=8))
def test_as_python_counts(texts: list[str]) -> None:
    data, offsets = buffers([text.encode() for text in texts])

    size = text_size(data, offsets)

    assert size.num_chars == sum(map(len, texts))
    assert size.num_words == sum(len(WORD.findall(text)) for text in texts)


def test_every_white_space_of_unicode_ends_a_word() -> None:
    spaces = set(regex.findall(r"\p{White_Space}", "".join(map(chr, range(0x110000)))))
    near = {chr(ord(space) + step) for space in spaces for step in (-2, -1, 1, 2) if ord(space) + step >= 0}
    for char in sorted(spaces | near):
        data, offsets = buffers([f"a{char}b".encode()])
        assert text_size(data, offsets).num_words == 1 + (char in spaces), f"U+{ord(char):04X}"


@pytest.mark.parametrize("period", [1, 2, 3, 7, 64])
def test_words_across_blocks(period: int) -> None:
    # Longer than the kernel's blocks, with documents and words that cross the bounds of blocks.
    text = (b"a" * period + b" ") * (600_000 // (period + 1))
    cuts = [*range(0, len(text), 65_537), len(text)]
    texts = [text[a:b] for a, b in pairwise(cuts)]

    assert text_size(*buffers(texts)).num_words == sum(len(one.split()) for one in texts)
    assert text_size(*buffers([text])).num_words == len(text.split())


@given(st.lists(st.binary(max_size=4), max_size=12))
def test_documents_that_are_not_utf8_are_moved_to_the_bad_ones(texts: list[bytes]) -> None:
    def valid(text: bytes) -> bool:
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
        return True

    piece = without_invalid_utf8(file_batch(texts, np.arange(len(texts))))

    assert [bad.row for bad in piece.bad] == [row for row, text in enumerate(texts) if not valid(text)]
    assert documents_of(piece.data, piece.offsets) == [text for text in texts if valid(text)]
    assert is_utf8(piece.data, piece.offsets)


@given(st.lists(st.lists(st.binary(max_size=9), max_size=6), max_size=6), st.integers(1, 20))
def test_batches_hold_the_same_documents(groups: list[list[bytes]], limit: int) -> None:
    ordinal = 0
    given_batches = []
    for texts in groups:
        data, offsets = buffers(texts)
        given_batches.append(DocumentBatch(data, offsets, np.arange(ordinal, ordinal + len(texts))))
        ordinal += len(texts)

    found = list(batched(given_batches, limit))

    assert [text for batch in found for text in batch.documents()] == [
        text for texts in groups for text in texts
    ]
    assert [one for batch in found for one in batch.ordinals.tolist()] == list(range(ordinal))
    assert all(len(batch.data) <= limit or np.count_nonzero(np.diff(batch.offsets)) == 1 for batch in found)
    assert all(len(batch) for batch in found)
