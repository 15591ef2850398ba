"""Copy many ranges of tokens (or of bytes) to their places, and count tokens by id."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64In, UInt16In, UInt32In, UInt64


@kernel
def gather(data: BytesIn, starts: Int64In, lengths: Int64In, places: Int64In, out: Bytes) -> None:
    """Copy `data[starts[k]:starts[k] + lengths[k]]` to `out[places[k]:places[k] + lengths[k]]` for every k.

    Args:
        data: uint8 [n].
        starts: int64 [p], bytes.
        lengths: int64 [p], bytes; each range must lie within `data` and `out`, which is not checked here.
        places: int64 [p], bytes.
        out: uint8 [m], written.
    """
    for k in range(len(starts)):
        # Unsigned indices need no check for negative values, so that the copy is vectorized.
        start = np.uint64(starts[k])
        place = np.uint64(places[k])
        for byte in range(np.uint64(lengths[k])):
            out[place + np.uint64(byte)] = data[start + np.uint64(byte)]


@kernel
def count_narrow(ids: UInt16In, counts: UInt64) -> int:
    """Add one to `counts[id]` for every id; see `count_wide`."""
    for position in range(ids.shape[0]):
        if ids[position] >= counts.shape[0]:
            return position
        counts[ids[position]] += np.uint64(1)
    return ids.shape[0]


@kernel
def count_wide(ids: UInt32In, counts: UInt64) -> int:
    """Add one to `counts[id]` for every id.

    Args:
        ids: uint32 [n].
        counts: uint64 [vocab_size], changed.

    Returns:
        n, or the position of the first id that is not below vocab_size; later ids are not counted.
    """
    for position in range(ids.shape[0]):
        if ids[position] >= counts.shape[0]:
            return position
        counts[ids[position]] += np.uint64(1)
    return ids.shape[0]
