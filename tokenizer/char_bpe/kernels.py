"""Encode pre-tokens by merging characters: the piece of the greatest score first, at its leftmost place.

A rank names a piece; pieces of equal scores have the same group.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int64Table, UInt32
from tokmill.tokenizer.kernels.characters import read_character
from tokmill.tokenizer.kernels.encoding import Memory, encoding_kernel, sampling_kernel
from tokmill.tokenizer.kernels.merges import (
    Scratch,
    Unknown,
    merge_symbols,
    merge_with_dropout,
    put_symbol,
    write_known,
)
from tokmill.tokenizer.kernels.pair_tables import PairTables
from tokmill.tokenizer.kernels.tries import Trie, longest_at


class Pieces(NamedTuple):
    """A vocabulary; only read.

    Attributes:
        points: shape (0x110000,), the symbol of each character by code point. Those that only occur in longer
            pieces have symbols from `unknown.first` on, and the others one that is greater than all of them.
        nothing: this symbol.
        frozen: the pieces that users defined, which are found first and never merged.
        pairs: the merges, by rank.
        unknown: what becomes of characters that are not pieces.
    """

    points: Int32
    nothing: int
    frozen: Trie
    pairs: PairTables
    unknown: Unknown


@kernel(inline=True)
def start_characters(data: BytesIn, start: int, end: int, pieces: Pieces, scratch: Scratch) -> None:
    """Put one symbol per character or frozen piece."""
    at, before = start, np.int64(-1)
    while at < end:
        after, symbol = longest_at(data, at, end, pieces.frozen)
        if symbol < 0:
            point, after = read_character(data, at, end)
            symbol = np.int64(pieces.points[point]) if point >= 0 else np.int64(pieces.nothing)
        before = put_symbol(symbol, at - start, after - start, before, scratch)
        at = after


@kernel(inline=True)
def encode_one(
    data: BytesIn, start: int, end: int, pieces: Pieces, room: Scratch, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Encode a pre-token; see `kernels.encoding`."""
    start_characters(data, start, end, pieces, room)
    merge_symbols(end - start, pieces.pairs, room)
    return write_known(data, start, end, end - start, pieces.unknown, room, memory.spans, out, at)


@kernel(inline=True)
def draw_one(
    data: BytesIn,
    start: int,
    end: int,
    pieces: Pieces,
    scratch: Scratch,
    spans: Int64Table,
    dropout: float,
    state: np.uint64,
    out: UInt32,
    at: int,
) -> tuple[int, int]:
    """Encode a pre-token with dropout."""
    start_characters(data, start, end, pieces, scratch)
    merge_with_dropout(end - start, pieces.pairs, scratch, dropout, state)
    return write_known(data, start, end, end - start, pieces.unknown, scratch, spans, out, at)


encode_pretokens = encoding_kernel(encode_one, Pieces, Scratch)
sample_pretokens = sampling_kernel(draw_one, Pieces, Scratch)
