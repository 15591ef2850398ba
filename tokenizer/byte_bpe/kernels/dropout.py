"""Encode pre-tokens with BPE-dropout; see `kernels.dropout`."""

import numpy as np

from tokmill.tokenizer.byte_bpe.kernels.model import WholeTokens, whole_token
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In, UInt32, UInt64, UInt64In
from tokmill.tokenizer.kernels.draws import first_state
from tokmill.tokenizer.kernels.dropout import merge_with_dropout
from tokmill.tokenizer.kernels.merges import Scratch, start_symbols, write_symbols
from tokmill.tokenizer.kernels.pairs import PairTables


@kernel
def sample_merges(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    tables: PairTables,
    whole: WholeTokens,
    scratch: Scratch,
    left_out: UInt64,
    dropout: float,
    seed: UInt64In,
    out: UInt32,
    out_offsets: Int64,
) -> int:
    """Encode every pre-token with dropout.

    The random numbers depend on the seed, the pre-token and its number in its document, and on nothing else.

    Args:
        data: the text.
        starts: shape (num_pretokens,).
        ends: shape (num_pretokens,).
        offsets: shape (num_documents + 1,), the pre-tokens of each document.
        tables: the merges.
        whole: tokens that are taken whole where nothing is left out, that is with the dropout 0.
        scratch: for the longest pre-token.
        left_out: shape (the longest pre-token,), scratch.
        dropout: the probability with which a merge is left out, from 0 to 1.
        seed: shape (1,), any number.
        out: room for an id per byte; receives the ids.
        out_offsets: shape (num_documents + 1,), the first one 0; receives where each document's ids end.

    Returns:
        The number of ids.
    """
    number = np.int64(0)
    for document in range(offsets.shape[0] - 1):
        for pretoken in range(offsets[document], offsets[document + 1]):
            start, end = starts[pretoken], ends[pretoken]
            if dropout == 0.0 and whole.size > 0:
                token = whole_token(data, start, end, whole)
                if token >= 0:
                    out[number] = token
                    number += 1
                    continue
            start_symbols(data, start, end - start, tables, scratch)
            state = first_state(seed[0], data, start, end, pretoken - offsets[document])
            merge_with_dropout(end - start, tables, scratch, left_out, dropout, state)
            number += write_symbols(end - start, scratch, out, number)
        out_offsets[document + 1] = number
    return number
