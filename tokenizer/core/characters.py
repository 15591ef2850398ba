"""The characters of text in buffers."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.pretoken_counts import PretokenCounts


def code_points(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the code point of the character at each start, in well-formed UTF-8."""
    padded = np.concatenate([data, np.zeros(3, np.uint8)])
    first, codes = padded[starts].astype(np.int64), padded[starts].astype(np.int64)
    for length, mask in ((2, 0x1F), (3, 0x0F), (4, 0x07)):
        some = np.flatnonzero(first >= (0xC0, 0xE0, 0xF0)[length - 2])
        code = first[some] & mask
        for i in range(1, length):
            code = code << 6 | padded[starts[some] + i] & 0x3F
        codes[some] = code
    return codes


def utf8_alone(counts: PretokenCounts) -> PretokenCounts:
    """Return the counts of the pre-tokens that are UTF-8, in their order."""
    if not (counts.data >= 0x80).any():
        return counts
    kept = {pretoken: count for pretoken, count in counts.to_dict().items() if _is_utf8(pretoken)}
    return counts if len(kept) == len(counts) else PretokenCounts.from_dict(kept, in_order=False)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
