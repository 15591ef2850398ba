"""Segmentations other than the best one: the best few, and random ones for training (subword regularization).

Source: Kudo 2018, "Subword Regularization".
"""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Text, Texts
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.segmentations import check_seed, check_strength, cut_texts
from tokmill.tokenizer.unigram.kernels.encoding import Ranked, rank_paths, sample_paths
from tokmill.tokenizer.unigram.kernels.lattice import Pieces, make_found
from tokmill.tokenizer.unigram.model import UnigramEncoder, UnigramModel


def n_best(definition: Definition, text: Text, k: int) -> list[tuple[list[int], float]]:
    """Return the `k` most probable segmentations of a text, with their log probabilities, the best first.

    There are fewer if the text has no more. Equal ones are in the order in which Viterbi meets them, so the
    first one is the encoding. Special tokens are encoded as text. `definition` is that of a `Tokenizer`.

    Raises:
        TokenizerError: it is not a unigram tokenizer, or `k` is not a positive integer.
    """
    if type(k) is not int or k < 1:
        raise TokenizerError(f"n_best: k={k!r} must be a positive integer; use e.g. 5")
    encoder = _encoder(definition)
    data, _, pretokens = cut_texts(definition, [text])
    size = data.shape[0]
    ranked = Ranked(np.empty((size + 1) * k), *np.empty((3, (size + 1) * k), np.int32))
    counts, found = np.zeros(size + 1, np.int64), make_found(encoder.longest)
    rank_paths(data, pretokens.starts, pretokens.ends, encoder.pieces, found, k, ranked, counts)
    bounds = set(pretokens.ends.tolist())
    return [
        (_followed(ranked, data, k, rank, bounds, encoder.pieces), float(ranked.scores[size * k + rank]))
        for rank in range(int(counts[size]))
    ]


def _followed(
    ranked: Ranked, data: NDArray[np.uint8], k: int, rank: int, bounds: set[int], pieces: Pieces
) -> list[int]:
    """Return the ids of a path, from its end.

    An unknown character becomes its bytes, or, with its neighbours in the pre-token, one unknown token.
    """
    ids, place = list[int](), data.shape[0]
    while place > 0:
        row = place * k + rank
        token, start = int(ranked.ids[row]), int(ranked.starts[row])
        if token == pieces.unknown and pieces.byte_ids.shape[0]:
            ids += pieces.byte_ids[data[start:place]][::-1].tolist()
        elif token != pieces.unknown or not ids or ids[-1] != token or place in bounds:
            ids.append(token)
        place, rank = start, int(ranked.ranks[row])
    return ids[::-1]


def sample_batch(definition: Definition, texts: Texts, *, alpha: float, seed: int = 0) -> EncodedBatch:
    """Encode texts by random segmentations.

    A segmentation of a pre-token is drawn with a probability proportional to its own to the power of `alpha`.
    The draw depends on the seed, the pre-token and its number in its text: neither on the other texts nor on
    how they are batched, and equal texts are cut alike. So take another seed for every epoch.

    Args:
        definition: of a unigram tokenizer (`Tokenizer.definition`).
        texts: documents; special tokens in them are encoded as text.
        alpha: 0 draws all segmentations alike, 1 by their probability, a large number the best one.
        seed: from 0 to 2**64 - 1.

    Raises:
        TokenizerError: it is not a unigram tokenizer, or `alpha` or `seed` is out of range.
    """
    check_strength("alpha", alpha, _MAX_ALPHA)
    check_seed(seed)
    encoder = _encoder(definition)
    data, _, pretokens = cut_texts(definition, texts)
    longest = int((pretokens.ends - pretokens.starts).max(initial=0))
    ids, offsets = np.empty(data.shape[0], np.uint32), np.zeros(pretokens.offsets.shape[0], np.int64)
    arguments = data, pretokens.starts, pretokens.ends, pretokens.offsets, encoder.pieces
    scratch = make_found(encoder.longest), np.empty(longest + 1)
    size = sample_paths(*arguments, *scratch, float(alpha), np.array([seed], np.uint64), ids, offsets)
    return EncodedBatch(ids[:size].astype(buffers.id_type(definition.vocab_size)), offsets)


_MAX_ALPHA = 1e6


def _encoder(definition: Definition) -> UnigramEncoder:
    model = definition.model
    if not isinstance(model, UnigramModel):
        raise TokenizerError(f"only the pieces of unigram have probabilities, and this is {model.family}")
    return model.encoder()
