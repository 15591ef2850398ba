"""Distinct pre-tokens and how often each occurs, as flat arrays in order of their bytes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.kernels.sorting import (
    MAX_PARTS,
    gather_strings,
    merge_neighbours,
    read_prefixes,
    sort_strings,
    sum_equal,
)

_BYTES_AT_A_TIME = 1 << 18
_STRINGS_A_SLICE = 1 << 22
_STRINGS_A_PART = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class PretokenCounts:
    """Distinct pre-tokens and how often each occurs.

    Attributes:
        data: uint8, shape (num_bytes,); the pre-tokens, sorted by bytes, one after the other.
        offsets: int64, shape (num_pretokens + 1,).
        counts: uint64, shape (num_pretokens,).
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def num_distinct_bytes(self) -> int:
        """Number of the 256 bytes that occur."""
        occurs = np.zeros(256, np.bool_)
        for first in range(0, self.data.shape[0], _BYTES_AT_A_TIME):  # the array of their counts is wider
            occurs |= np.bincount(self.data[first : first + _BYTES_AT_A_TIME], minlength=256) > 0
        return int(np.count_nonzero(occurs))

    def to_dict(self) -> dict[bytes, int]:
        """Return counts by pre-token, in order."""
        return dict(zip(buffers.unpack(self.data, self.offsets), self.counts.tolist(), strict=True))

    @classmethod
    def from_dict(cls, counts: Mapping[bytes, int], *, in_order: bool = True) -> Self:
        """Sort counts that are in any order; without `in_order` leave them in that of the mapping.

        Raises:
            TokenizerError: a pre-token is not bytes, or a count is not an integer from 0 to 2**64 - 1.
        """
        if not isinstance(counts, Mapping):
            raise TokenizerError(
                f"counts: {type(counts).__name__} must be a mapping of pre-tokens to counts, "
                "such as {b' the': 3}"
            )
        for word, count in counts.items():
            if not isinstance(word, bytes):
                raise TokenizerError(f"counts: the pre-token {word!r} must be bytes; use {word!r}.encode()")
            if not isinstance(count, int | np.integer) or not 0 <= count < 1 << 64:
                raise TokenizerError(
                    f"counts: {word!r} has {count!r}, but a count is an integer from 0 to 2**64 - 1"
                )
        data, offsets = buffers.pack_bytes(list(counts))
        values = np.fromiter(counts.values(), np.uint64, len(counts))
        return cls.sorted(data, offsets, values) if in_order else cls(data, offsets, values)

    @classmethod
    def sorted(
        cls,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        counts: NDArray[np.uint64],
        *,
        distinct: bool = False,
    ) -> Self:
        """Sort pre-tokens in any order, and add up the counts of those that occur twice, unless none does."""
        order, keys = order_of(data, offsets[:-1], offsets[1:])
        if distinct:
            return cls._laid_out(data, offsets, order, counts[order])
        read_prefixes(data, offsets, keys)
        return cls._summed(data, offsets, counts, keys, order)

    @classmethod
    def merge(cls, many: Iterable[Self]) -> Self:
        """Add counts up."""
        parts = [part for part in many if len(part)]
        data, offsets, counts = _joined(parts)
        prefixes = np.empty(counts.shape[0], np.uint64)
        read_prefixes(data, offsets, prefixes)
        order, spare = np.arange(counts.shape[0]), np.empty(counts.shape[0], np.int64)
        runs, left = np.cumsum([0, *map(len, parts)], dtype=np.int64), len(parts)
        while left > 1:
            left = merge_neighbours(data, offsets, prefixes, runs, order, spare)
            order, spare = spare, order
        return cls._summed(data, offsets, counts, prefixes, order)

    @classmethod
    def most_frequent_first(cls, many: Iterable[Self]) -> Iterator[Self]:
        """Yield the pre-tokens of several in order of their counts; of equally frequent ones the last first.

        A pre-token of several occurs several times. They come in parts, since few readers need all.
        """
        data, offsets, counts = _joined(many)
        order = np.argsort(counts, kind="stable")[::-1].copy()
        for start in range(0, len(order), _STRINGS_A_PART):
            part = order[start : start + _STRINGS_A_PART]
            yield cls._laid_out(data, offsets, part, counts[part])

    @classmethod
    def _summed(
        cls,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        counts: NDArray[np.uint64],
        prefixes: NDArray[np.uint64],
        order: NDArray[np.int64],
    ) -> Self:
        """Add up the counts of equal pre-tokens, which are beside each other in an order."""
        firsts, sums = zero_pages(counts.shape[0], np.int64), zero_pages(counts.shape[0], np.uint64)
        distinct = sum_equal(data, offsets, prefixes, order, counts, firsts, sums)
        return cls._laid_out(data, offsets, firsts[:distinct], sums[:distinct])

    @classmethod
    def _laid_out(
        cls,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        order: NDArray[np.int64],
        counts: NDArray[np.uint64],
    ) -> Self:
        """Lay pre-tokens out in an order, in which their counts are already."""
        out_offsets = zero_pages(order.shape[0] + 1, np.int64)
        out = zero_pages(int((offsets[order + 1] - offsets[order]).sum()), np.uint8)
        gather_strings(data, offsets, order, out, out_offsets)
        return cls(out, out_offsets, counts)


def _joined(
    parts: Iterable[PretokenCounts],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]:
    """Return the pre-tokens of several parts one after the other: bytes, offsets and counts."""
    given = [*parts]
    lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in given)])
    data = np.concatenate([np.zeros(0, np.uint8), *(part.data for part in given)])
    return (
        data,
        np.cumsum(lengths),
        np.concatenate([np.zeros(0, np.uint64), *(part.counts for part in given)]),
    )


def order_of(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the order of the strings `data[starts[k]:ends[k]]` by their bytes, and an array for scratch."""
    order, keys = zero_pages(starts.shape[0], np.int64), zero_pages(starts.shape[0], np.uint64)
    order[:] = np.arange(starts.shape[0])
    parts, height = np.empty((MAX_PARTS, 3), np.int64), -1
    while height:
        raise_if_stopped()
        height = sort_strings(data, starts, ends, order, keys, parts, max(height, 0), _STRINGS_A_SLICE)
    return order, keys
