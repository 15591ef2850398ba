"""A keyed permutation of 0 … size - 1, whose values can be computed one by one.

Up to 65,536 indices are sorted by a keyed hash; more go through a balanced Feistel network of eight rounds
over the smallest 4^b values that hold them, again until inside ("cycle walking", Black and Rogaway 2002).
Integers only, so that a key gives the same order on every machine and with every version of Python and numpy.
"""

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Key: TypeAlias = tuple[int, ...]

_ROUNDS = 8
_SMALL = 1 << 16
_CHUNK = 1 << 18  # values at a time: the temporaries stay in the processor's cache


def permutation_key(*parts: str | int) -> Key:
    """Eight 64-bit keys from any number of names and whole numbers, such as a seed and an epoch."""
    text = "".join(f"{len(str(part))}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8 * _ROUNDS, person=b"tokmill.permute").digest()
    return tuple(int.from_bytes(digest[8 * k : 8 * k + 8], "little") for k in range(_ROUNDS))


def permutation(size: int, key: Key) -> NDArray[np.int64]:
    """The whole permutation: int64 [size], each of 0 … size - 1 once."""
    order = np.empty(size, dtype=np.int64)
    for start in range(0, size, _CHUNK):
        positions = np.arange(start, min(start + _CHUNK, size), dtype=np.int64)
        order[start : start + len(positions)] = permuted(positions, size, key)
    return order


def permuted(positions: NDArray[np.int64], size: int, key: Key) -> NDArray[np.int64]:
    """The indices, int64 [n], at `positions`, int64 [n], of the permutation; both in [0, size)."""
    if size <= _SMALL:
        hashes = scrambled(scrambled(np.arange(size, dtype=np.uint64), key[0]), key[1])
        return np.argsort(hashes, kind="stable").astype(np.int64)[positions]
    half_bits = ((size - 1).bit_length() + 1) // 2
    values = _network(positions.astype(np.uint64), half_bits, key)
    outside = np.flatnonzero(values >= size)
    while len(outside):
        values[outside] = _network(values[outside], half_bits, key)
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def _network(values: NDArray[np.uint64], half_bits: int, key: Key) -> NDArray[np.uint64]:
    """One pass through the Feistel network over [0, 4^half_bits)."""
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for round_key in key:
        left, right = right, left ^ (scrambled(right, round_key) & mask)
    return (left << shift) | right


def scrambled(values: NDArray[np.uint64], round_key: int) -> NDArray[np.uint64]:
    """SplitMix64's finalizer (Steele et al. 2014) over `values ^ round_key`: a bijection mixing all bits."""
    found = values ^ np.uint64(round_key)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found
