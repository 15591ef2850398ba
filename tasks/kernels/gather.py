"""Copies many pieces of one buffer to their places in another, without a Python call a piece."""

from tokenizer.kernels import kernel
from tokenizer.kernels.arrays import Bytes, BytesIn, Int64In


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
        start = starts[k]
        place = places[k]
        for byte in range(lengths[k]):
            out[place + byte] = data[start + byte]
