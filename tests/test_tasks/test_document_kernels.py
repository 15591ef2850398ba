"""The kernels over documents and tokens, against obvious implementations, compiled and as plain Python."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.encode.encoding import write_shard
from tokmill.tasks.formats.encoded import EncodedStatistics
from tokmill.tasks.formats.text.documents import file_batch
from tokmill.tasks.formats.text.sharding import document_hashes
from tokmill.tasks.kernels.documents import gather

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


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8))
def test_pieces_are_copied_to_their_places(pieces: list[tuple[int, int]]) -> None:
    data = np.arange(100, dtype=np.uint8)
    starts, lengths = np.array(pieces, dtype=np.int64).reshape(-1, 2).T.copy()
    places = np.cumsum(lengths) - lengths
    out = np.empty(lengths.sum(), dtype=np.uint8)

    gather(data, starts, lengths, places, out)

    assert out.tolist() == [byte for start, length in pieces for byte in range(start, start + length)]


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
        "test_measures.py::test_by_hand",
        "test_readers_jsonl.py::test_documents_by_hand",
        "test_readers_jsonl.py::test_a_bad_line_is_reported_and_the_others_are_kept",
        "test_readers_jsonl.py::test_the_id_may_be_the_text",
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
