"""Train an interpolated Kneser-Ney trigram model on encoded documents.

The model. Let c(u v w) be the count of a trigram, and N(• v w) the number of distinct ids that precede v w.
Each order subtracts a discount D from every count and gives the freed probability to the order below:

    p3(u v w) = (c(u v w) - D3) / c(u v •)          r3(u v) = D3 N(u v •) / c(u v •)
    p2(v w)   = (N(• v w) - D2) / N(• v •)          r2(v)   = D2 N(v •) / N(• v •)
    P(w)      = (N(• w) - D1) / N(• •) + D1 M / N(• •) / n

Two start marks precede each document, as the context of its first ids. M of the n ids occur in the training
documents. A discount is n1 / (n1 + 2 n2), where n1 and n2 are the numbers of n-grams that occur once and
twice.

Laws. After any two ids the probabilities of all ids sum to 1. Counts are found by sorting, which takes a few
machine words of memory per token.

Source: Kneser and Ney 1995, "Improved backing-off for m-gram language modeling"; in the interpolated form of
Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling".
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.kernels.scoring import TrigramModel

_MOST_BITS = 21  # three ids in 63 bits
Keys = NDArray[np.uint64]


def train(documents: Sequence[NDArray[Any]], vocab_size: int) -> TrigramModel:
    """Train a model."""
    keys = trigram_keys(documents, vocab_size)
    if not len(keys):
        raise MixingError("score: there are no documents to train a model on; encode more text")
    return _model(*np.unique(keys, return_counts=True), vocab_size)


def _bits(vocab_size: int) -> int:
    bits = vocab_size.bit_length()  # one id more: the start mark
    if bits > _MOST_BITS:
        raise MixingError(
            f"score: a vocabulary of {vocab_size} is too large for perplexity, which supports fewer than "
            f"{1 << _MOST_BITS} ids; use difficulty = 'length' or 'noise'"
        )
    return bits


def trigram_keys(documents: Sequence[NDArray[Any]], vocab_size: int) -> Keys:
    """Every trigram of every document as one number: uint64 [number of ids in all documents], in order."""
    bits = np.uint64(_bits(vocab_size))
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    padded = np.full(int(lengths.sum()) + 2 * len(documents), vocab_size, dtype=np.uint64)
    places = np.cumsum(lengths + 2) - lengths
    for place, document in zip(places.tolist(), documents, strict=True):
        padded[place : place + len(document)] = document
    keys = (padded[:-2] << bits | padded[1:-1]) << bits | padded[2:] if len(padded) else padded
    inside = np.ones(len(padded), dtype=bool)
    inside[places - 1] = inside[places - 2] = False
    return np.asarray(keys[inside[2:]], dtype=np.uint64)


def _model(keys: Keys, counts: NDArray[np.int64], vocab_size: int) -> TrigramModel:
    bits = np.uint64(_bits(vocab_size))
    low, both = np.uint64((1 << int(bits)) - 1), np.uint64((1 << 2 * int(bits)) - 1)
    contexts = keys >> bits
    first = np.flatnonzero(np.append(True, contexts[1:] != contexts[:-1]))
    contexts, num_follow = contexts[first], np.diff(first, append=len(keys))
    context_counts = np.add.reduceat(counts, first)
    discount = _discount(counts)
    trigrams = (counts - discount) / np.repeat(context_counts, num_follow)

    pairs, num_before = np.unique(keys & both, return_counts=True)
    before_all = np.uint64(vocab_size) << bits | np.uint64(vocab_size)
    pairs, num_before = (
        np.append(pairs, before_all),
        np.append(num_before, 0),
    )  # the start marks are a context, but never a bigram
    of_first = (pairs >> bits).astype(np.int64)
    size = vocab_size + 1
    middles = np.bincount(of_first, weights=num_before, minlength=size)
    kinds = np.bincount(of_first[num_before > 0], minlength=size)
    pair_discount = _discount(num_before[num_before > 0])
    bigrams = np.maximum(num_before - pair_discount, 0) / np.maximum(middles[of_first], 1)

    at = np.searchsorted(pairs, contexts)
    bigram_rests, follow = np.ones(len(pairs)), np.zeros(len(pairs), dtype=np.int64)
    bigram_rests[at] = discount * num_follow / context_counts
    follow[at] = num_follow
    return TrigramModel(
        unigrams=_unigrams(pairs[num_before > 0] & low, vocab_size).astype(np.float32),
        rests=np.where(middles > 0, pair_discount * kinds / np.maximum(middles, 1), 1).astype(np.float32),
        starts=np.searchsorted(of_first, np.arange(size + 1)).astype(np.int64),
        second=(pairs & low).astype(np.uint32),
        bigrams=bigrams.astype(np.float32),
        bigram_rests=bigram_rests.astype(np.float32),
        bigram_starts=np.concatenate([[0], np.cumsum(follow)]).astype(np.int64),
        third=(keys & low).astype(np.uint32),
        trigrams=trigrams.astype(np.float32),
    )


def _unigrams(last: Keys, vocab_size: int) -> NDArray[np.float64]:
    """P(w), by the number of distinct ids that precede w; `last` has the second id of every bigram."""
    num_before = np.bincount(last.astype(np.int64), minlength=vocab_size + 1)
    seen = num_before[num_before > 0]
    discount = _discount(seen)
    rest = discount * len(seen) / len(last) / vocab_size
    chances: NDArray[np.float64] = np.maximum(num_before - discount, 0) / len(last) + rest
    chances[vocab_size] = 0.0
    return chances


def _discount(counts: NDArray[np.int64]) -> float:
    """The discount of every count; 0.5 if no n-gram occurs once, or none twice."""
    once, twice = int(np.count_nonzero(counts == 1)), int(np.count_nonzero(counts == 2))
    return once / (once + 2 * twice) if once and twice else 0.5
