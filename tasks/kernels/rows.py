"""Copy rows of stored tokens into a batch, and convert them to a wider type if needed."""

from typing import Any

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Int32, Int64, Int64In, UInt16, UInt16In, UInt32In


@kernel
def copy_16_to_16(data: UInt16In, starts: Int64In, places: Int64In, length: int, out: UInt16) -> None:
    """Copy `data[starts[k]:starts[k] + length]` to `out[places[k]:places[k] + length]` for every k.

    Args:
        data: uint16 [n].
        starts: int64 [r], in values.
        places: int64 [r], in values.
        length: values per row; each range must lie within `data` and `out`, which is not checked here.
        out: [m], written.
    """
    _copy(data, starts, places, length, out)


@kernel
def copy_16_to_32(data: UInt16In, starts: Int64In, places: Int64In, length: int, out: Int32) -> None:
    """The same into int32."""
    _copy(data, starts, places, length, out)


@kernel
def copy_16_to_64(data: UInt16In, starts: Int64In, places: Int64In, length: int, out: Int64) -> None:
    """The same into int64."""
    _copy(data, starts, places, length, out)


@kernel
def copy_32_to_64(data: UInt32In, starts: Int64In, places: Int64In, length: int, out: Int64) -> None:
    """The same from uint32 into int64."""
    _copy(data, starts, places, length, out)


@kernel(inline=True)
def _copy(data: Any, starts: Any, places: Any, length: int, out: Any) -> None:
    for k in range(len(starts)):
        start = np.uint64(starts[k])
        place = np.uint64(places[k])
        for at in range(np.uint64(length)):
            out[place + at] = data[start + at]
