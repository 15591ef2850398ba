"""Read the documents of an encoded shard in blocks of tokens, without their end tokens."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tokenizer.core.stopping import raise_if_stopped

_TOKENS = 1 << 20


class TokenBlock(NamedTuple):
    """Consecutive documents.

    Attributes:
        first: position of the first document in the shard.
        tokens: uint16 | uint32 [t], a view; tokens between two documents belong to neither.
        starts: int64 [d], index in `tokens` at which each document begins.
        lengths: int64 [d], tokens of each document.
    """

    first: int
    tokens: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def token_blocks(shard: EncodedShard, end_id: int | None, size: int = _TOKENS) -> Iterator[TokenBlock]:
    """Yield the documents of a shard in blocks of about `size` tokens, at least one document each.

    Args:
        shard: the encoded shard.
        end_id: the end-of-document token to leave out of each document; None for none.
        size: a block ends with the document that brings it to at least this many tokens.
    """
    offsets, first = shard.offsets, 0
    while first < shard.num_documents:
        raise_if_stopped()
        stop = int(np.searchsorted(offsets, offsets[first] + size))
        stop = max(first + 1, min(stop, shard.num_documents))
        begin, end = int(offsets[first]), int(offsets[stop])
        starts = np.asarray(offsets[first:stop] - begin, dtype=np.int64)
        lengths = np.asarray(np.diff(offsets[first : stop + 1]), dtype=np.int64)
        tokens = shard.tokens[begin:end]
        if end_id is not None:
            last = tokens[np.maximum(starts + lengths - 1, 0)] if len(tokens) else np.empty(0)
            lengths = lengths - ((lengths > 0) & (last == end_id))
        yield TokenBlock(first, tokens, starts, lengths)
        first = stop
