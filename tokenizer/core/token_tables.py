"""The tokens of a vocabulary as tries, for kernels."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.kernels.sorting import merge_neighbours, read_prefixes
from tokmill.tokenizer.kernels.tries import TokenTrie, TrieRoom, build_trie


def lay_out_trie(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    tokens: NDArray[np.int64],
    byte_ids: NDArray[np.int32],
) -> tuple[TokenTrie, NDArray[np.int32]]:
    """Return the trie of tokens of two bytes or more, and the longest other token that each begins with."""
    prefixes = np.full(offsets.shape[0] - 1, -1, np.int32)
    room = int((offsets[tokens + 1] - offsets[tokens]).sum())
    trie = TokenTrie(
        byte_ids,
        np.full(1 << 16, -1, np.int32),
        np.empty(room + 1, np.int32),
        np.zeros(room, np.int32),
        np.empty(room + 8, np.uint8),
    )
    order, work = _by_bytes(data, offsets, tokens), TrieRoom(*np.empty((4, room), np.int32))
    number = build_trie(trie, data, offsets, order, prefixes, work)
    nodes, labels = trie.nodes[: number + 1].copy(), trie.labels[: number + 8].copy()
    return trie._replace(nodes=nodes, tokens=trie.tokens[:number].copy(), labels=labels), prefixes


def trie_of(texts: Mapping[int, bytes], size: int) -> TokenTrie:
    """Return the trie of some of `size` ids by their texts."""
    data, offsets = pack_bytes([texts.get(i, b"") for i in range(size)])
    byte_ids = np.full(256, -1, np.int32)
    for i, text in texts.items():
        if len(text) == 1:
            byte_ids[text[0]] = i
    longer = np.array([i for i, text in texts.items() if len(text) != 1], np.int64)
    return lay_out_trie(data.copy(), offsets, longer, byte_ids)[0]


def _by_bytes(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], tokens: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return tokens sorted by their bytes."""
    prefixes = np.empty(offsets.shape[0] - 1, np.uint64)
    read_prefixes(data, offsets, prefixes)
    order, spare, runs = tokens.copy(), np.empty_like(tokens), np.arange(tokens.shape[0] + 1)
    left = tokens.shape[0]
    while left > 1:
        left = merge_neighbours(data, offsets, prefixes, runs, order, spare)
        order, spare = spare, order
    return order
