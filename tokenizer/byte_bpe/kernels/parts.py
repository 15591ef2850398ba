"""Encode a pre-token that is not cached: cut it where no token reaches across, encode each part alone."""

import numpy as np

from tokmill.tokenizer.byte_bpe.kernels.characters import NO_CHARACTER, apart, character_at
from tokmill.tokenizer.byte_bpe.kernels.greedy import encode_greedily
from tokmill.tokenizer.byte_bpe.kernels.model import Memory, Model, whole_token
from tokmill.tokenizer.byte_bpe.kernels.short_merges import merge_short
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32Table, UInt32
from tokmill.tokenizer.kernels.cache import recall_short, remember_short, short_place
from tokmill.tokenizer.kernels.merges import merge_bytes
from tokmill.tokenizer.kernels.words import MAX_SHORT, load_short, narrow

_PART = np.uint64(1 << 60)
"""Set in the key of a part, since a pre-token of the same bytes may be encoded as one token."""


@kernel(inline=True)
def write_character(code: int, ids: Int32Table, out: UInt32, at: int) -> int:
    """Write the ids of one character into `out`, with room for three; return their number."""
    out[at], out[at + 1], out[at + 2] = ids[code, 1], ids[code, 2], ids[code, 3]
    return np.int64(ids[code, 0])


@kernel(inline=True)
def encode_part(
    data: BytesIn, start: int, end: int, known: bool, model: Model, memory: Memory, out: UInt32, at: int
) -> int:
    """Encode a part; return the number of ids written.

    Args:
        data: the text.
        start: where the part begins.
        end: where it ends.
        known: whether to look for it in the cache, and to keep it there.
        model: the vocabulary.
        memory: of this thread.
        out: receives the ids.
        at: index of the first id in `out`.
    """
    low, high, place, count = np.uint64(0), np.uint64(0), np.int64(0), np.int64(0)
    if known:
        low, high = load_short(data, start, end - start)
        high |= _PART
        place = short_place(memory.cache, low, high)
        count = recall_short(memory.cache, place, low, high, out, at)
    if count == 0:
        count = encode_greedily(
            data, start, end, model.pairs, model.trie, model.table, memory.greedy, out, at
        )
        if known:
            remember_short(memory.cache, place, low, high, out, at, count)
    return count


@kernel(inline=True)
def encode_in_parts(
    data: BytesIn, start: int, end: int, model: Model, memory: Memory, out: UInt32, at: int
) -> int:
    """Encode a pre-token, cut between characters that are apart; return the number of ids written."""
    count, part, here = np.int64(0), start, start
    code, code_at, before = np.int64(NO_CHARACTER), start, np.int64(NO_CHARACTER)
    while part < end:
        size = np.int64(0)
        before, before_at = code, code_at
        if here < end:
            code, size = character_at(data, here, end)
            code_at = here
        if here == end or (before >= 0 and code >= 0 and apart(before, code, model.characters)):
            if before >= 0 and before_at == part:
                count += write_character(before, model.characters.ids, out, at + count)
            else:
                known = here - part <= MAX_SHORT and here - part < end - start
                count += encode_part(data, part, here, known, model, memory, out, at + count)
            part = here
        here += size
    return count


@kernel(inline=True)
def encode_anew(
    data: BytesIn, start: int, end: int, model: Model, memory: Memory, out: UInt32, at: int
) -> int:
    """Encode a pre-token without the cache into `out` from `at` on; return the number of ids written."""
    if model.whole.size > 0:
        token = whole_token(data, start, end, model.whole)
        if token >= 0:
            out[at] = token
            return np.int64(1)
    if model.ordered:
        if end - start <= MAX_SHORT and narrow(*load_short(data, start, end - start)):
            return merge_short(data, start, end, model.pairs, memory.merging, out, at)
        return encode_in_parts(data, start, end, model, memory, out, at)
    count, _ = merge_bytes(data, start, end, model.pairs, memory.merging, out, at)
    return count
