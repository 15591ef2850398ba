"""Copy many ranges of one buffer to their places in another, without one Python call per range."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64In


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
