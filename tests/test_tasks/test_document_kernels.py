"""Kernels over documents and measures of text, against Python's own, compiled and plain."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.encode.encoding import write_shard
from tokmill.tasks.formats.encoded import EncodedStatistics
from tokmill.tasks.formats.text.documents import (
    DocumentBatch,
    file_batch,
    is_utf8,
    without_invalid_utf8,
)
from tokmill.tasks.formats.text.shards import batched, document_hashes
from tokmill.tasks.kernels.text_size import text_size

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(value: int) -> int:
    """SplitMix64, in Python's unbounded integers."""
    value = (value + GOLDEN) & WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


def hashed(document: bytes) -> int:
    words = [document[at : at + 8] for at in range(0, len(document), 8)]
    total = sum(
        mixed((int.from_bytes(word, "little") + number * GOLDEN) & WORD) for number, word in enumerate(words)
    )
    return mixed((total & WORD) ^ mixed(len(document)))


@given(st.lists(st.binary(max_size=30), max_size=8))
@example([b"", b"a", b"12345678", b"123456789", b"\0" * 16, b"\xff" * 17])
def test_documents_are_hashed_word_by_word(documents: list[bytes]) -> None:
    piece = file_batch(documents, np.arange(len(documents)))

    assert document_hashes(piece.data, piece.offsets).tolist() == [hashed(one) for one in documents]


@pytest.mark.parametrize(("vocab_size", "dtype"), [(5, np.uint16), (70_000, np.uint32)])
def test_ids_are_counted_and_ids_beyond_the_vocabulary_refused(
    tmp_path: Path, vocab_size: int, dtype: type[np.generic]
) -> None:
    tokens, ordinals = np.array([4, 0, 4, 1], dtype=dtype), np.array([0])

    with write_shard(tmp_path, vocab_size) as writer:
        writer.append(tokens, np.array([0, 4]), ordinals, EncodedStatistics())

    assert np.load(tmp_path / "token_counts.npy")[:5].tolist() == [1, 1, 0, 0, 2]
    strange = np.array([vocab_size], dtype=dtype)
    message = f"id {vocab_size} must be less than vocab_size={vocab_size}"
    with write_shard(tmp_path, vocab_size) as writer, pytest.raises(StoreError, match=message):
        writer.append(strange, np.array([0, 1]), ordinals, EncodedStatistics())


@pytest.mark.slow
def test_the_kernels_run_as_plain_python(checkout: Path) -> None:
    chosen = [
        "test_document_kernels.py::test_ids_are_counted_and_ids_beyond_the_vocabulary_refused",
        "test_document_kernels.py::test_documents_are_hashed_word_by_word",
        "test_document_kernels.py::test_by_hand",
        "test_mixing_curricula.py::test_what_is_eligible_and_what_is_drawn_by_hand",
        "test_packing_strategies.py::test_sequences_of_a_window_are_in_the_order_of_their_places",
        "test_loading.py::TestBatches::test_wide_vocabularies",
        "test_loading.py::TestBatches::test_hold_what_the_reader_gives",
        "test_readers_json.py::test_documents_by_hand",
        "test_readers_json.py::test_a_bad_line_is_reported_and_the_others_are_kept",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "-x", "-p", "no:cacheprovider"]
        + [f"tests/test_tasks/{name}" for name in chosen],
        cwd=checkout,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


ODD = "a b\t\n\v\f\r\x1c\x1f\u00e9\u2028\u00a0\u0085\u1680\u2003\u200b\u205f\u3000\u3001\U0001f600"
WORD_PATTERN = regex.compile(r"\P{White_Space}+")


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
    assert size.num_words == sum(len(WORD_PATTERN.findall(text)) for text in texts)


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
    assert piece.documents() == [text for text in texts if valid(text)]
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
