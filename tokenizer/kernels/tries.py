"""Tries over bytes: of a vocabulary, to find the longest token that begins at a byte, and of special tokens.

A vocabulary's nodes are numbered level by level, so that the children of a node are side by side, and their
last bytes are compared eight at a time; one table leads from the first two bytes to their node. Special
tokens are found in one pass: the longest one at a byte is taken, and the search goes on after it.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int32, Int32Table, Int64, Int64In, UInt32, UInt64
from tokmill.tokenizer.jit.intrinsics import count_trailing_zeros, load_u64
from tokmill.tokenizer.kernels.encoding import Memory, encoding_kernel

_EACH_BYTE = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)


class TokenTrie(NamedTuple):
    """A vocabulary as a trie.

    Attributes:
        byte_ids: shape (256,), the token of each byte.
        first_two: shape (65536,), the node of two bytes, by first * 256 + second; -1 if no token begins so.
        nodes: shape (num_nodes + 1,): twice the first child (the children end where those
            of the next node begin), plus one if the node is a token itself.
        tokens: shape (num_nodes,), the token that a node is.
        labels: shape (num_nodes + 8,), each node's last byte.
    """

    byte_ids: Int32
    first_two: Int32
    nodes: Int32
    tokens: Int32
    labels: Bytes


class TrieRoom(NamedTuple):
    """Working memory of building a trie; shape (most nodes,) each.

    Attributes:
        first: the first string that a node begins, in the sorted order.
        after: the string after the last one.
        depth: bytes of the node.
        above: the longest other token that it begins with.
    """

    first: Int32
    after: Int32
    depth: Int32
    above: Int32


@kernel(inline=True)
def longest_token(data: BytesIn, at: int, end: int, trie: TokenTrie) -> tuple[int, int]:
    """Return the longest token that begins at `at` and ends by `end`, and where it ends."""
    token, after = np.int64(trie.byte_ids[data[at]]), at + 1
    if after >= end:
        return token, after
    node = np.int64(trie.first_two[np.int64(data[at]) << 8 | np.int64(data[after])])
    at += 2
    found = np.int64(-1)
    while node >= 0:
        children = np.int64(trie.nodes[np.uint64(node)])
        if children & 1:
            found, after = node, at
        if at >= end:
            break
        node = child_of(node, children >> 1, np.int64(data[at]), trie)
        at += 1
    if found >= 0:
        token = np.int64(trie.tokens[found])
    return token, after


@kernel(inline=True)
def child_of(node: int, child: int, byte: int, trie: TokenTrie) -> int:
    """Return the child of a node for a byte, or -1; `child` is the node's first child."""
    last = np.int64(trie.nodes[np.uint64(node + 1)]) >> 1
    wanted = np.uint64(byte) * _EACH_BYTE
    while child < last:
        differences = load_u64(trie.labels, child) ^ wanted
        equal = (differences - _EACH_BYTE) & ~differences & _HIGH_BITS  # its lowest bit is no false alarm
        if equal != 0:
            child += np.int64(count_trailing_zeros(equal) >> 3)
            return child if child < last else np.int64(-1)
        child += 8
    return np.int64(-1)


@kernel
def build_trie(
    trie: TokenTrie,
    token_data: BytesIn,
    token_offsets: Int64In,
    order: Int64In,
    prefixes: Int32,
    room: TrieRoom,
) -> int:
    """Build a trie; return the number of nodes."""
    number, lead, two = np.int64(0), -1, np.int64(2)
    for k in range(order.shape[0]):
        start = token_offsets[order[k]]
        pair = np.int64(token_data[start]) << 8 | np.int64(token_data[start + 1])
        if pair != lead:
            trie.first_two[pair] = number
            number = add_node(
                trie, room, number, k, two, trie.byte_ids[token_data[start]], token_data[start + 1]
            )
            lead = pair
        room.after[number - 1] = k + 1
    node = 0
    while node < number:
        k, depth, above = np.int64(room.first[node]), np.int64(room.depth[node]), room.above[node]
        itself = 0
        if token_offsets[order[k] + 1] - token_offsets[order[k]] == depth:
            trie.tokens[node], prefixes[order[k]] = order[k], above
            above, itself = np.int32(order[k]), 1
            k += 1
        trie.nodes[node] = number << 1 | itself
        label = -1
        for child in range(k, room.after[node]):
            byte = token_data[token_offsets[order[child]] + depth]
            if byte != label:
                number = add_node(trie, room, number, child, depth + 1, above, byte)
                label = np.int64(byte)
            room.after[number - 1] = child + 1
        node += 1
    trie.nodes[number] = number << 1
    return number


@kernel(inline=True)
def add_node(
    trie: TokenTrie, room: TrieRoom, node: int, first: int, depth: int, above: int, label: int
) -> int:
    """Add a node; return the number of nodes."""
    room.first[node], room.depth[node], room.above[node] = first, depth, above
    trie.labels[node] = label
    return node + 1


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


@kernel(inline=True)
def cut_longest(
    data: BytesIn, start: int, end: int, trie: TokenTrie, scratch: int, memory: Memory, out: UInt32, at: int
) -> tuple[int, int]:
    """Take the longest token at each place; see `kernels.encoding`. Every byte is a token."""
    number = np.int64(0)
    while start < end:
        token, start = longest_token(data, start, end, trie)
        out[at + number] = token
        number += 1
    return number, np.int64(0)


encode_longest = encoding_kernel(cut_longest, TokenTrie, int)
