"""Look pre-tokens up in the cache of a thread, by where a block of them was found to be."""

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, UInt32
from tokmill.tokenizer.kernels.cache import (
    MIDDLE,
    EncodingCache,
    Fetched,
    recall_middle,
    recall_short,
    remember_middle,
    remember_short,
)


@kernel(inline=True)
def recall(
    data: BytesIn,
    start: int,
    length: int,
    row: int,
    cache: EncodingCache,
    fetched: Fetched,
    out: UInt32,
    at: int,
) -> int:
    """Write the ids of a pre-token that is in the cache; return their number, 0 if it is not."""
    place = fetched.places[row]
    if place >= 0:
        low, high = fetched.lows[row], fetched.highs[row]
        return recall_short(cache, place, low, high, out, at)
    if place <= MIDDLE:
        return recall_middle(cache, MIDDLE - place, data, start, length, out, at)
    return 0


@kernel(inline=True)
def remember(
    data: BytesIn,
    start: int,
    length: int,
    row: int,
    cache: EncodingCache,
    fetched: Fetched,
    out: UInt32,
    at: int,
    count: int,
) -> None:
    """Put the ids of a pre-token into the cache, if it has a place there."""
    place = fetched.places[row]
    if place >= 0:
        low, high = fetched.lows[row], fetched.highs[row]
        remember_short(cache, place, low, high, out, at, count)
    elif place <= MIDDLE:
        remember_middle(cache, MIDDLE - place, data, start, length, out, at, count)
