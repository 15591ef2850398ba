"""The surprisal of documents under a trigram model.

The probability of a token w after u v is interpolated from three orders:

    P(w | u v) = p3(u v w) + r3(u v) × P(w | v),     P(w | v) = p2(v w) + r2(v) × P(w)

where an unseen n-gram has p = 0, and an unseen context has r = 1. Two binary searches per token: the bigram v
w of one token is the context of the next.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.kernels.drawing import logarithm
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int64, Int64In, UInt32

Float32: TypeAlias = NDArray[np.float32]
_SMALL = 1e-200


class TrigramModel(NamedTuple):
    """A model over ids below n; n itself is the start mark before a document."""

    unigrams: Float32  # [n + 1], P(w)
    rests: Float32  # [n + 1], r2 of each context v
    starts: Int64  # [n + 2], where the bigrams that begin with each v begin
    second: UInt32  # [b], the second id of each bigram, ascending for each first one
    bigrams: Float32  # [b], p2
    bigram_rests: Float32  # [b], r3 of the bigram as a context; 1 if no trigram begins with it
    bigram_starts: Int64  # [b + 1], where the trigrams that begin with each bigram begin
    third: UInt32  # [t], the third id of each trigram, ascending for each first two
    trigrams: Float32  # [t], p3


@kernel
def surprisals(
    tokens: Int64In, starts: Int64In, lengths: Int64In, chosen: Int64In, model: TrigramModel, out: Float32
) -> None:
    """Write the mean surprisal, in nats per token, of the `chosen` documents to `out`; NaN without tokens."""
    before = len(model.unigrams) - 1
    for document in chosen:
        start, length = starts[document], lengths[document]
        last = before
        context = _search(model.second, model.starts[before], model.starts[before + 1], before)
        total = 0.0
        product = 1.0
        for at in range(start, start + length):
            token = tokens[at]
            chance = np.float64(model.unigrams[token]) * model.rests[last]
            bigram = _search(model.second, model.starts[last], model.starts[last + 1], token)
            if bigram >= 0:
                chance += model.bigrams[bigram]
            if context >= 0:
                first, end = model.bigram_starts[context], model.bigram_starts[context + 1]
                chance *= model.bigram_rests[context]
                trigram = _search(model.third, first, end, token)
                if trigram >= 0:
                    chance += model.trigrams[trigram]
            product *= chance
            if product < _SMALL:
                total -= logarithm(product)
                product = 1.0
            last = token
            context = bigram
        out[document] = (total - logarithm(product)) / length if length else np.nan


@kernel(inline=True)
def _search(values: UInt32, low: int, high: int, value: int) -> int:
    """The index of a value in the ascending values[low:high]; -1 if it is not there."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return -1 if low == end or values[low] != value else low
