"""Characters that may be merged before all else, which saves most merges in text beyond ASCII.

Merged by itself, a character of two or three bytes ends as one or two tokens, by merges of ranks up to some
R. It is *closed* between two neighbours if no merge of a rank up to R joins one of the tokens that it is
made of on the way with one that ends in the byte before it or begins with the byte behind it. Merging is
going through the ranks in order, as long as every merge ranks behind those that make its parts (other
vocabularies have no closed characters); so a closed character becomes its tokens before anything is joined
with a part of it, and may as well do so at once. The bytes before and behind are 64 each: those that end a
character, and those that begin one. Next to ASCII (a space joins early with many first bytes) nothing is
closed.
"""

import numpy as np

from tokenizer.kernels.arrays import BytesIn, Int32, Int32In, Int64, Int64In, UInt32Table, UInt64Table
from tokenizer.kernels.jit import kernel
from tokenizer.kernels.pairs import NO_MERGE, PairTables, find_rank

CODE_POINTS = 1 << 16
"""Characters of up to three bytes."""

BEFORE, BEHIND, TOKENS = 0, 1, 2
_SECOND_SHIFT, _SIZE_SHIFT, _ID_MASK = 21, 42, (1 << 21) - 1
_NO_SECOND = _ID_MASK
_SIX_BITS = 63


@kernel
def find_pieces(token_data: BytesIn, token_offsets: Int64In, pieces: Int32) -> int:
    """Number the tokens that can be a part of a character: one or two bytes beyond ASCII.

    Args:
        token_data: the tokens' bytes, by id.
        token_offsets: shape (num_ids + 1,).
        pieces: shape (num_ids,), -1 everywhere; receives the numbers.

    Returns:
        How many there are.
    """
    number = 0
    for token in range(pieces.shape[0]):
        first, end = token_offsets[token], token_offsets[token + 1]
        if 1 <= end - first <= 2 and token_data[first] >= 0x80 and token_data[end - 1] >= 0x80:
            pieces[token] = number
            number += 1
    return number


@kernel
def find_floors(
    left: Int32In,
    right: Int32In,
    token_data: BytesIn,
    token_offsets: Int64In,
    pieces: Int32In,
    from_left: UInt32Table,
    from_right: UInt32Table,
) -> None:
    """Find the lowest rank at which each piece can be joined with what stands beside it.

    Args:
        left: shape (num_merges,), the merges' first parts, in order of rank.
        right: shape (num_merges,), their second parts.
        token_data: the tokens' bytes, by id.
        token_offsets: shape (num_ids + 1,).
        pieces: from `find_pieces`.
        from_left: shape (number of pieces, 64), NO_MERGE everywhere; receives the lowest rank of a merge of
            a piece with a token before it, by the last byte of that, less 0x80.
        from_right: the same, with a token behind it, by the first byte of that, less 0xC0.
    """
    for rank in range(left.shape[0] - 1, -1, -1):
        last = token_data[token_offsets[left[rank] + 1] - 1]
        if pieces[right[rank]] >= 0 and 0x80 <= last < 0xC0:
            from_left[pieces[right[rank]], last - 0x80] = rank
        first = token_data[token_offsets[right[rank]]]
        if pieces[left[rank]] >= 0 and first >= 0xC0:
            from_right[pieces[left[rank]], first - 0xC0] = rank


@kernel
def find_closed(
    tables: PairTables,
    pieces: Int32In,
    from_left: UInt32Table,
    from_right: UInt32Table,
    scratch: Int64,
    characters: Int32,
    closed: UInt64Table,
) -> int:
    """Find what characters become, and between which neighbours.

    Args:
        tables: the merges.
        pieces: from `find_pieces`.
        from_left: from `find_floors`.
        from_right: from `find_floors`.
        scratch: shape (8,).
        characters: shape (CODE_POINTS,), -1 everywhere; receives the rows of `closed`.
        closed: shape (CODE_POINTS, 3); receives the bytes before and behind which it is open, as bits, and
            its tokens.

    Returns:
        The number of rows.
    """
    rows = 0
    for point in range(0x80, CODE_POINTS):
        number = spell(point, tables, scratch)
        states, highest, first_size = 0, np.uint32(0), 1
        while number > 1:
            rank, place = find_rank(tables, scratch[0], scratch[1]), 0
            if number == 3:
                other = find_rank(tables, scratch[1], scratch[2])
                if other < rank:
                    rank, place = other, 1
            if rank == NO_MERGE:
                break
            scratch[4 + states], scratch[6 + states] = pieces[scratch[0]], pieces[scratch[number - 1]]
            states += 1
            highest = max(highest, rank)
            scratch[place] = tables.results[rank]
            first_size = 2 - place
            number -= 1
            if place == 0:
                scratch[1] = scratch[2]
        if states == 0:
            continue
        before, behind = np.uint64(0), np.uint64(0)
        for i in range(states):
            for byte in range(64):
                if from_left[scratch[4 + i], byte] <= highest:
                    before |= np.uint64(1) << np.uint64(byte)
                if from_right[scratch[6 + i], byte] <= highest:
                    behind |= np.uint64(1) << np.uint64(byte)
        second = scratch[1] if number == 2 else _NO_SECOND
        closed[rows, BEFORE], closed[rows, BEHIND] = before, behind
        closed[rows, TOKENS] = np.uint64(scratch[0] | second << _SECOND_SHIFT | first_size << _SIZE_SHIFT)
        characters[point] = rows
        rows += 1
    return rows


@kernel(inline=True)
def spell(point: int, tables: PairTables, symbols: Int64) -> int:
    """Write the tokens of the bytes of a character into `symbols`; return how many bytes it has."""
    if point < 0x800:
        symbols[0] = tables.byte_ids[0xC0 | point >> 6]
        symbols[1] = tables.byte_ids[0x80 | point & _SIX_BITS]
        return 2
    symbols[0] = tables.byte_ids[0xE0 | point >> 12]
    symbols[1] = tables.byte_ids[0x80 | point >> 6 & _SIX_BITS]
    symbols[2] = tables.byte_ids[0x80 | point & _SIX_BITS]
    return 3


@kernel(inline=True)
def closed_at(data: BytesIn, at: int, start: int, end: int, tables: PairTables) -> int:
    """Return the row of the closed character at a place of a pre-token, or -1 if there is none."""
    first = np.int64(data[at])
    if first < 0xC2 or first >= 0xF0:
        return -1
    length = 2 if first < 0xE0 else 3
    if at + length > end:
        return -1
    second = np.int64(data[at + 1]) ^ 0x80
    point = (first & 0x1F) << 6 | second
    if length == 3:
        third = np.int64(data[at + 2]) ^ 0x80
        point = (first & 0x0F) << 12 | second << 6 | third
        second |= third
        if point < 0x800:
            return -1
    if second > _SIX_BITS or tables.characters[point] < 0:
        return -1
    row = np.int64(tables.characters[point])
    return row if is_closed(row, data, at, at + length, start, end, tables) else -1


@kernel(inline=True)
def is_closed(row: int, data: BytesIn, at: int, after: int, start: int, end: int, tables: PairTables) -> bool:
    """Whether the character at `at:after` is closed between its neighbours in the pre-token `start:end`."""
    if at > start:
        before = np.int64(data[at - 1]) ^ 0x80
        if before > _SIX_BITS or tables.closed[row, BEFORE] >> np.uint64(before) & np.uint64(1) != 0:
            return False
    if after < end:
        behind = np.int64(data[after]) ^ 0xC0
        if behind > _SIX_BITS or tables.closed[row, BEHIND] >> np.uint64(behind) & np.uint64(1) != 0:
            return False
    return True


@kernel(inline=True)
def tokens_of(row: int, tables: PairTables) -> tuple[int, int, int]:
    """Return a closed character's first token, the bytes of that, and its second token or -1."""
    packed = np.int64(tables.closed[row, TOKENS])
    second = packed >> _SECOND_SHIFT & _ID_MASK
    return packed & _ID_MASK, packed >> _SIZE_SHIFT, second if second != _NO_SECOND else -1
