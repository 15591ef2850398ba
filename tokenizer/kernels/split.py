"""Scan text with the tables of a split expression (see `tokenizer.splitting.transducer`).

The decoder turns bytes into columns, and the transducer columns into cuts: two look-ups per byte that do not
wait for each other, and no branch that depends on where pre-tokens end; ASCII goes two characters per step.
Segments are texts of their own. Runs of characters may then be cut into groups of equal size, from the right.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32In, Int64, Int64In, UInt16In, UInt32In
from tokmill.tokenizer.jit.intrinsics import load_u64
from tokmill.tokenizer.kernels.characters import count_characters

_SLOW = 4
_NOT_ASCII = np.uint64(0x8080808080808080)
_PAIR_BITS, _PAIR_MASK = np.uint64(16), np.uint64(0xFFFF)
_PATIENCE = 8  # bytes processed one character at a time before checking again for ASCII


class SplitTables(NamedTuple):
    """A split expression as tables; built by `tokenizer.splitting.automaton`.

    Attributes:
        layout: int64, shape (4,): columns of the decoder; the column of a byte that stands alone; entries in
            a state's row; whether there are tables of pairs.
        next_node: uint32, shape (num_nodes * 256,), by node + byte.
        column: uint8, same shape; 0 within a character.
        columns: uint8, shape (65536,), by code point; that of ill-formed bytes for surrogates.
        next_state: uint16, shape (num_states * width,), by state + column.
        flags: uint8, same shape.
        pair_of: uint16, shape (32768,), by two bytes of ASCII, the first one's being the lower: their number.
        pair_next: uint16, shape (num_states * width,), by state + number of the pair.
        pair_flags: uint8, same shape; the combined effect of two characters, see `write_pair_cuts`.
        matcher_next: int32, shape (num_matcher_states * columns,), by state + column; -1 is dead.
        matcher_match: uint8, same shape.
    """

    layout: Int64In
    next_node: UInt32In
    column: BytesIn
    columns: BytesIn
    next_state: UInt16In
    flags: BytesIn
    pair_of: UInt16In
    pair_next: UInt16In
    pair_flags: BytesIn
    matcher_next: Int32In
    matcher_match: BytesIn


class Scan(NamedTuple):
    """The state of a scan.

    Attributes:
        position: the next byte to read.
        here: the start of the character that it belongs to.
        before: the start of the character before that one.
        state: the transducer's state, as the beginning of its row.
        num_cuts: cuts made so far.
        column: a symbol that needs special treatment, or 0.
    """

    position: int
    here: int
    before: int
    state: int
    num_cuts: int
    column: int


@kernel(inline=True)
def entry(table: NDArray[Any], index: int) -> int:
    """Read a table at an index that is not negative, as its unsigned type tells the compiler."""
    return np.int64(table[np.uint64(index)])


@kernel(inline=True)
def write_cuts(flag: int, before: int, here: int, cuts: Int64, count: int) -> int:
    """Apply a flag without a branch; return the new number of cuts."""
    count -= flag >> 3
    cuts[np.uint64(count)] = before
    count += (flag >> 1) & 1
    cuts[np.uint64(count)] = here
    return count + (flag & 1)


@kernel(inline=True)
def write_pair_cuts(flag: int, before: int, here: int, cuts: Int64, count: int) -> int:
    """Apply a pair's flag: take back cuts (bits 4 and up), cut before the last (0), here (1), after (3)."""
    count -= flag >> 4
    cuts[np.uint64(count)] = before
    count += flag & 1
    cuts[np.uint64(count)] = here
    count += (flag >> 1) & 1
    cuts[np.uint64(count)] = here + 1
    return count + ((flag >> 3) & 1)


@kernel(inline=True)
def scan_pairs(data: BytesIn, end: int, tables: SplitTables, cuts: Int64, scan: Scan) -> Scan:
    """Process ASCII in pairs, eight bytes at a time, as long as only ASCII follows."""
    position, _, before, state, count, _ = scan
    stopped = tables.layout[3] == 0
    while position + 8 <= end and not stopped:
        word = load_u64(data, position)
        if word & _NOT_ASCII:
            break
        for _ in range(4):
            pair = state + entry(tables.pair_of, word & _PAIR_MASK)
            flag = entry(tables.pair_flags, pair)
            if flag & _SLOW:
                stopped = True
                break
            state = entry(tables.pair_next, pair)
            count = write_pair_cuts(flag, before, position, cuts, count)
            before = position + 1
            position += 2
            word >>= _PAIR_BITS
    return Scan(position, position, before, state, count, 0)


@kernel(inline=True)
def code_at(data: BytesIn, at: int) -> tuple[int, int]:
    """Return code point and size of a character of up to three readable bytes; size 0 if it is none."""
    byte = entry(data, at)
    if byte < 0x80:
        return byte, 1
    second = entry(data, at + 1) ^ 0x80
    if byte < 0xE0:
        return (byte & 31) << 6 | second, 2 if byte >= 0xC2 and second < 64 else 0
    third = entry(data, at + 2) ^ 0x80
    code = (byte & 15) << 12 | second << 6 | third
    return code, 3 if byte < 0xF0 and (second | third) < 64 and code >= 0x800 else 0


@kernel(inline=True)
def scan_characters(data: BytesIn, end: int, tables: SplitTables, cuts: Int64, scan: Scan) -> Scan:
    """Process some characters of up to three bytes, or until one needs special treatment."""
    position, _, before, state, count, _ = scan
    until = min(position + _PATIENCE, end - 2)
    while position < until:
        code, size = code_at(data, position)
        if size == 0:
            break
        column = entry(tables.columns, code)
        flag = entry(tables.flags, state + column)
        if flag & _SLOW:
            break
        state = entry(tables.next_state, state + column)
        count = write_cuts(flag, before, position, cuts, count)
        before = position
        position += size
    return Scan(position, position, before, state, count, 0)


@kernel(inline=True)
def scan_bytes(data: BytesIn, end: int, tables: SplitTables, cuts: Int64, scan: Scan) -> Scan:
    """Process some bytes one by one, or until a symbol needs special treatment."""
    position, here, before, state, count, _ = scan
    until = position + _PATIENCE
    node = 0
    while position < end:
        k = node + entry(data, position)
        column = entry(tables.column, k)
        flag = entry(tables.flags, state + column)
        if flag & _SLOW:
            return Scan(position, here, before, state, count, column)
        state = entry(tables.next_state, state + column)
        node = entry(tables.next_node, k)
        count = write_cuts(flag, before, here, cuts, count)
        position += 1
        before = here if column else before
        here = position if column else here
        if column and position >= until:
            return Scan(position, here, before, state, count, 0)
    column = tables.layout[0] - (2 if node == 0 else 1)
    return Scan(position, here, before, state, count, column)


@kernel(inline=True)
def next_character(data: BytesIn, at: int, end: int, tables: SplitTables) -> tuple[int, int]:
    """Read the character at `at`; return its column, and the start of the next one."""
    if at >= end:
        return tables.layout[0] - 2, end
    node = 0
    for position in range(at, end):
        k = node + entry(data, position)
        column = entry(tables.column, k)
        if column == tables.layout[0] - 1:
            break
        if column:
            return column, position + 1
        node = entry(tables.next_node, k)
    return tables.layout[1], at + 1


@kernel(inline=True)
def match_end(data: BytesIn, at: int, end: int, tables: SplitTables) -> int:
    """Find the end of the match that starts at `at`; `at` itself if there is none."""
    state = 0
    best = at
    position = at
    while state >= 0:
        column, after = next_character(data, position, end, tables)
        if tables.matcher_match[state + column]:
            best = position
        state = entry(tables.matcher_next, state + column)
        position = after
    return best


@kernel(inline=True)
def ask_matcher(data: BytesIn, origin: int, end: int, tables: SplitTables, cuts: Int64, scan: Scan) -> Scan:
    """Find the end of the pre-token that starts at the last cut, a match or a stretch without a match."""
    gap = tables.layout[2]
    origin = scan.here if scan.state == gap else origin
    count = scan.num_cuts
    stop = match_end(data, origin, end, tables)
    if stop == origin:
        _, after = next_character(data, origin, end, tables)
        return Scan(after, after, after, gap, count, 0)
    if scan.state == gap:
        cuts[np.uint64(count)] = origin
        count += 1
    cuts[np.uint64(count)] = stop
    return Scan(stop, stop, stop, 0, count + 1, 0)


@kernel(inline=True)
def scan_segment(data: BytesIn, start: int, end: int, tables: SplitTables, cuts: Int64, count: int) -> int:
    """Append the ends of one segment's pre-tokens to `cuts`; return the new number of cuts."""
    scan = Scan(start, start, start, 0, count, 0)
    while True:
        begun = scan.position
        scan = scan_characters(data, end, tables, cuts, scan_pairs(data, end, tables, cuts, scan))
        if scan.position > begun:
            continue
        scan = scan_bytes(data, end, tables, cuts, scan)
        column = scan.column
        if column == 0:
            continue
        if column == tables.layout[0] - 1:  # ill-formed bytes: the first is a character of its own
            column = tables.layout[1]
        flag = entry(tables.flags, scan.state + column)
        if flag & _SLOW:
            origin = cuts[scan.num_cuts - 1] if scan.num_cuts > count else start
            scan = ask_matcher(data, origin, end, tables, cuts, scan)
            continue
        made = write_cuts(flag, scan.before, scan.here, cuts, scan.num_cuts)
        if scan.here >= end:
            return made
        state = entry(tables.next_state, scan.state + column)
        scan = Scan(scan.here + 1, scan.here + 1, scan.here, state, made, 0)


@kernel
def scan_segments(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    tables: SplitTables,
    cuts: Int64,
    offsets: Int64,
) -> int:
    """Cut segments into pre-tokens; return the number of pre-tokens."""
    count = np.int64(0)
    offsets[0] = 0
    for segment in range(len(starts)):
        count = scan_segment(data, starts[segment], ends[segment], tables, cuts, count)
        offsets[segment + 1] = count
    return count


@kernel(inline=True)
def reaches_end(data: BytesIn, at: int, end: int, tables: SplitTables) -> bool:
    """Whether a match that starts at `at` may still depend on what follows `end`."""
    state = 0
    position = at
    while state >= 0:
        if position >= end:
            return True
        column, position = next_character(data, position, end, tables)
        state = entry(tables.matcher_next, state + column)
    return False


@kernel
def find_uncertain(data: BytesIn, starts: Int64In, ends: Int64In, tables: SplitTables, reach: Int64) -> int:
    """Find the first pre-token that more text could change, and how far it reaches; else their number."""
    count = len(starts)
    end = ends[count - 1] if count else 0
    for k in range(count):
        start = starts[k]
        reach[0] = start
        if reaches_end(data, start, end, tables):
            return k
        if match_end(data, start, end, tables) > start:
            continue
        at = start
        while at < ends[k]:
            if reaches_end(data, at, end, tables):
                reach[0] = at
                return k
            _, at = next_character(data, at, end, tables)
        if at >= end:
            reach[0] = end
            return k
    return count


@kernel
def count_groups(
    data: BytesIn, starts: Int64In, ends: Int64In, tables: SplitTables, size: int, numbers: Int64
) -> None:
    """Count the groups of each part of a text; a part that is no run is a group."""
    for part in range(len(starts)):
        column, _ = next_character(data, starts[part], ends[part], tables)
        numbers[part] = 1
        if tables.matcher_next[column] >= 0:
            numbers[part] = (count_characters(data, starts[part], ends[part]) + size - 1) // size


@kernel
def write_groups(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    size: int,
    group_starts: Int64,
    group_ends: Int64,
) -> None:
    """Write the bounds of groups, for each part from its end to its beginning."""
    for part in range(len(starts)):
        first, end = offsets[part], ends[part]
        for group in range(offsets[part + 1] - 1, first, -1):
            group_ends[group] = end
            for _ in range(size):
                end -= 1
                while (entry(data, end) & 0xC0) == 0x80:
                    end -= 1
            group_starts[group] = end
        group_starts[first], group_ends[first] = starts[part], end
