"""The order in which a source gives its documents: shuffled anew each time through it.

The model. A document's key is a hash of 64 bits of its shard and its place there, under a secret that follows
from the seed, the source's name and the epoch; the documents come by ascending key. This is a permutation
whatever the hash, and one that nobody can tell from a random one: it is sorted, so that every document occurs
exactly once, and sorting works in bounded memory (`tasks.mixing.sorting`).

Laws. Another source, weight or total does not reshuffle a source, and neither does text that is added to it
in further shards. Documents without tokens never come.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tasks.mixing.lengths import LengthBlock, SourceLengths
from tasks.mixing.permutation import Key, permutation_key, scrambled
from tasks.mixing.sorting import Rows, Scratch, sorted_rows

DOCUMENT = np.dtype([("key", "<u8"), ("shard", "<u4"), ("document", "<u4"), ("num_tokens", "<u4")])


def shuffled(lengths: SourceLengths, source: str, seed: int, epoch: int, scratch: Scratch) -> Iterator[Rows]:
    """Yield the documents of a source in the order of an epoch, in blocks of `DOCUMENT`."""
    key = permutation_key("mix", seed, source, epoch)
    blocks = (_documents(block, key) for block in lengths.blocks(source))
    return sorted_rows(blocks, scratch)


def _documents(block: LengthBlock, key: Key) -> Rows:
    """A block's documents that have tokens, with their keys."""
    kept = np.flatnonzero(block.lengths)
    rows = np.empty(len(kept), dtype=DOCUMENT)
    rows["document"] = kept + block.first
    rows["shard"] = block.shard
    rows["num_tokens"] = block.lengths[kept]
    rows["key"] = document_keys(rows["shard"], rows["document"], key)
    return rows


def document_keys(shards: NDArray[np.uint32], documents: NDArray[np.uint32], key: Key) -> NDArray[np.uint64]:
    """Hash documents, uint64 [n]; different documents have different hashes."""
    words = (shards.astype(np.uint64) << np.uint64(32)) | documents
    return scrambled(scrambled(words, key[0]), key[1])
