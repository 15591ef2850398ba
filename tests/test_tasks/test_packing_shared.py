"""Best fit over real documents: hardly any padding, and nothing cut that would have fitted.

Two of the corpora and the translations; `benchmarks/packing.py` does the same with everything.
"""

import json

import numpy as np
import pytest
import zstandard

from tests.test_tasks.packed_lengths import packed_by
from tokmill import tokenizer

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]


@pytest.fixture(scope="module")
def lengths(shared_data):
    """Tokens of every document with its end token, in a shuffled order: int64."""
    texts = []
    for name in ("english_docs", "multilingual_docs"):
        file = shared_data / "corpora" / f"{name}.jsonl.zst"
        lines = zstandard.ZstdDecompressor().stream_reader(file.read_bytes()).read().splitlines()
        texts += [json.loads(line)["text"] for line in lines]
    for file in sorted((shared_data / "ntrex").glob("*.txt")):
        texts += file.read_text(encoding="utf-8").splitlines()
    tok = tokenizer.load(shared_data / "vocabs" / "cl100k_base.tiktoken", split_pattern="cl100k")
    counts = np.diff(tok.encode_batch([text for text in texts if text]).offsets) + 1
    return np.random.default_rng(0).permutation(counts)


@pytest.mark.parametrize("capacity", [2048, 8192])
def test_best_fit_leaves_less_than_a_thousandth_of_padding(lengths, capacity):
    sizes = [len(lengths[k : k + 100_000]) for k in range(0, len(lengths), 100_000)]
    pieces = packed_by("best_fit", lengths, capacity, sizes=sizes)
    num_pieces = np.bincount(pieces.document, minlength=len(lengths))
    assert pieces.num_tokens == lengths.sum()
    assert 1 - pieces.num_tokens / (pieces.num_sequences * capacity) < 0.001
    assert (num_pieces[lengths <= capacity] == 1).all()
    assert np.bincount(pieces.sequence, weights=pieces.length).max() <= capacity
