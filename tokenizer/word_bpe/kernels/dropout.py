"""Encode words with BPE-dropout; see `kernels.dropout`."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, Int64Table, UInt32, UInt64, UInt64In
from tokmill.tokenizer.kernels.draws import first_state
from tokmill.tokenizer.kernels.dropout import merge_with_dropout
from tokmill.tokenizer.kernels.merges import Scratch
from tokmill.tokenizer.word_bpe.kernels.merging import Pieces, start_word, write_word


@kernel
def sample_words(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    bounds: Int64In,
    pieces: Pieces,
    scratch: Scratch,
    left_out: UInt64,
    dropout: float,
    seed: UInt64In,
    nowhere: Int64Table,
    ids: UInt32,
    id_ends: Int64,
    lost_bytes: Int64,
) -> int:
    """Write the ids of the words of some documents, with dropout.

    The random numbers depend on the seed, the word and its number in its document, and on nothing else.

    Args:
        data: the text.
        starts: shape (num_words,); word k is `data[starts[k]:ends[k]]`.
        ends: shape (num_words,).
        bounds: shape (num_documents + 1,); document d has the words from `bounds[d]` to `bounds[d + 1]`.
        pieces: the vocabulary.
        scratch: with one place more than the longest word has bytes.
        left_out: scratch, as long.
        dropout: the probability with which a merge is left out, from 0 to 1.
        seed: shape (1,), any number.
        nowhere: shape (0, 2).
        ids: with room for an id per byte of a word, and one per word; written.
        id_ends: shape (num_documents + 1,), the first one 0; written: where each document's ids end.
        lost_bytes: shape (num_documents,); written: bytes of unknown letters.

    Returns:
        The number of ids.
    """
    number = np.int64(0)
    for document in range(bounds.shape[0] - 1):
        lost_bytes[document] = 0
        for k in range(bounds[document], bounds[document + 1]):
            start, end = starts[k], ends[k]
            places = start_word(data, start, end, pieces, scratch)
            state = first_state(seed[0], data, start, end, k - bounds[document])
            merge_with_dropout(places, pieces.pairs, scratch, left_out, dropout, state)
            count, lost = write_word(start, end - start, places, pieces, scratch, ids, nowhere, number)
            number += count
            lost_bytes[document] += lost
        id_ends[document + 1] = number
    return number
