"""Find special tokens in text in one pass.

The special tokens form a trie over their bytes. From each byte that begins one, the trie is followed as far
as the text matches; the longest special token on the way is taken, and the search continues after it.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32, Int32Table, Int64, Int64In, UInt64
from tokmill.tokenizer.jit.intrinsics import count_trailing_zeros, load_u64

_EACH_BYTE = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_EIGHT_BITS = np.uint64(3)


class Trie(NamedTuple):
    """A trie over bytes; node 0 is the root.

    Attributes:
        classes: shape (256,), the column of each byte; 0 for bytes that no special token holds.
        children: shape (num_nodes, num_classes), the next node, or 0.
        ids: shape (num_nodes,), the id of the special token that ends at a node, or -1.
        firsts: shape (n,), the bytes that special tokens begin with, each repeated eight times.
    """

    classes: Bytes
    children: Int32Table
    ids: Int32
    firsts: UInt64


@kernel(inline=True)
def next_first(data: BytesIn, position: int, end: int, firsts: UInt64) -> int:
    """Return the next place, from `position` on, where a special token may begin; `end` if there is none."""
    while position + 8 <= end:
        word, hits = load_u64(data, position), np.uint64(0)
        for k in range(firsts.shape[0]):
            differences = word ^ firsts[k]
            hits |= (differences - _EACH_BYTE) & ~differences & _HIGH_BITS
        if hits != 0:
            return position + np.int64(count_trailing_zeros(hits) >> _EIGHT_BITS)
        position += 8
    return position


@kernel(inline=True)
def longest_at(data: BytesIn, position: int, end: int, trie: Trie) -> tuple[int, int]:
    """Return where the longest special token from `position` ends and its id, or (position, -1)."""
    node = np.int64(0)
    longest, token = position, np.int64(-1)
    for i in range(position, end):
        node = np.int64(trie.children[node, trie.classes[data[i]]])
        if node == 0:
            break
        if trie.ids[node] >= 0:
            longest, token = i + 1, np.int64(trie.ids[node])
    return longest, token


@kernel
def find_specials(data: BytesIn, offsets: Int64In, trie: Trie, starts: Int64, ends: Int64, ids: Int64) -> int:
    """Find special tokens within documents; return their number, of which as many are written as fit."""
    found = 0
    for document in range(offsets.shape[0] - 1):
        position, end = offsets[document], offsets[document + 1]
        while position < end:
            position = next_first(data, position, end, trie.firsts)
            if position >= end:
                break
            longest, token = longest_at(data, position, end, trie)
            if token < 0:
                position += 1
                continue
            if found < starts.shape[0]:
                starts[found], ends[found], ids[found] = position, longest, token
            found += 1
            position = longest
    return found
