"""Characters of UTF-8, one at a time."""

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn

UNKNOWN_CHARACTER = -1
_CONTINUES, _TOP_TWO = 0x80, 0xC0
_LEAST_POINT = np.array([0, 0, 0x80, 0x800, 0x10000], np.int64)


@kernel(inline=True)
def read_character(data: BytesIn, at: int, end: int) -> tuple[int, int]:
    """Return a character's code point, -1 if it is not UTF-8, and where the next one begins."""
    first, after = np.int64(data[at]), at + 1
    while after < end and data[after] & _TOP_TWO == _CONTINUES:
        after += 1
    size = after - at
    if first < 0x80 and size == 1:
        return first, after
    if size < 2 or size > 4 or first >> (7 - size) != (1 << size + 1) - 2:
        return UNKNOWN_CHARACTER, after
    point = first & (0x3F >> size - 1)
    for i in range(at + 1, after):
        point = point << 6 | (np.int64(data[i]) & 0x3F)
    return (point if _LEAST_POINT[size] <= point < 0x110000 else UNKNOWN_CHARACTER), after
