"""Counting pre-tokens: what BPE training starts from.

Laws: counts are exact u64; the result is sorted by bytes, so it depends neither on the order of the text
    nor on how it was cut into batches; merging counts is associative and commutative; special tokens are
    cut out first and never counted. Memory grows with distinct pre-tokens, not with the text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenizer import buffers, normalizers
from tokenizer.errors import TokenizerError
from tokenizer.kernels.counting import (
    ARENA,
    LONG,
    SHORT,
    count_strings,
    empty_tables,
    list_counts,
    move_counts,
)
from tokenizer.kernels.sorting import gather_strings, merge_neighbours, read_prefixes, sum_equal
from tokenizer.kernels.words import MAX_SHORT
from tokenizer.specials import chunks, cut
from tokenizer.splitting import Splitter


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

    def to_dict(self) -> dict[bytes, int]:
        """Return counts by pre-token, in order."""
        return dict(zip(buffers.unpack(self.data, self.offsets), self.counts.tolist(), strict=True))

    @classmethod
    def from_dict(cls, counts: Mapping[bytes, int]) -> Self:
        """Sort counts that come in any order.

        Raises:
            TokenizerError: a count is negative, or 2**64 or more.
        """
        for word, count in counts.items():
            if not 0 <= count < 1 << 64:
                raise TokenizerError(f"counts: {word!r} has {count}, but a count is from 0 to 2**64 - 1")
        data, offsets = buffers.pack_bytes(list(counts))
        return cls.sorted(data, offsets, np.fromiter(counts.values(), np.uint64, len(counts)))

    @classmethod
    def sorted(cls, data: NDArray[np.uint8], offsets: NDArray[np.int64], counts: NDArray[np.uint64]) -> Self:
        """Sort pre-tokens that stand in any order, and add up the counts of those that stand there twice."""
        return cls._from_runs(data, offsets, counts, np.arange(counts.shape[0] + 1))

    @classmethod
    def merge(cls, many: Iterable[Self]) -> Self:
        """Add counts up."""
        parts = [part for part in many if len(part)]
        data = np.concatenate([np.zeros(0, np.uint8), *(part.data for part in parts)])
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
        counts = np.concatenate([np.zeros(0, np.uint64), *(part.counts for part in parts)])
        runs = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls._from_runs(data, np.cumsum(lengths), counts, runs)

    @classmethod
    def _from_runs(
        cls,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        counts: NDArray[np.uint64],
        runs: NDArray[np.int64],
    ) -> Self:
        """Sort pre-tokens of which runs are sorted already, and add up the counts of equal ones."""
        total = counts.shape[0]
        prefixes = np.empty(total, np.uint64)
        read_prefixes(data, offsets, prefixes)
        order, spare, left = np.arange(total), np.empty(total, np.int64), runs.shape[0] - 1
        while left > 1:
            left = merge_neighbours(data, offsets, prefixes, runs, order, spare)
            order, spare = spare, order
        firsts, sums = np.empty(total, np.int64), np.empty(total, np.uint64)
        distinct = sum_equal(data, offsets, prefixes, order, counts, firsts, sums)
        firsts = firsts[:distinct]
        out_offsets = np.empty(distinct + 1, np.int64)
        out = np.empty(int((offsets[firsts + 1] - offsets[firsts]).sum()), np.uint8)
        gather_strings(data, offsets, firsts, out, out_offsets)
        return cls(out, out_offsets, sums[:distinct].copy())


class PretokenCounter:
    """Counts pre-tokens batch by batch; one thread's own."""

    def __init__(self) -> None:
        self._tables = empty_tables(1 << 10, 1 << 8, 1 << 14)

    def __len__(self) -> int:
        return int(self._tables.used[SHORT] + self._tables.used[LONG])

    def add(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Count the pre-tokens `data[starts[k]:ends[k]]`."""
        done = 0
        while done < starts.shape[0]:
            done = count_strings(data, starts, ends, done, self._tables)
            if done < starts.shape[0]:
                self._grow(int(ends[done] - starts[done]))

    def add_documents(
        self,
        data: ArrayLike,
        offsets: ArrayLike,
        splitter: Splitter,
        specials: Sequence[str] = (),
        normalizer: str | None = None,
    ) -> None:
        """Count the pre-tokens of documents; see `count_pretokens`."""
        text, cuts = buffers.checked(data, offsets)
        segments = cut(text, cuts, {name: i for i, name in enumerate(specials)})
        for first, last in chunks(segments.bounds):
            bounds, kinds = segments.bounds[first : last + 1], segments.kinds[first:last]
            piece, bounds = normalizers.normalize_pieces(normalizer, text, bounds, kinds >= 0)
            found = splitter.split(piece, bounds)
            if (kinds >= 0).any():
                ordinary = np.repeat(kinds < 0, np.diff(found.offsets))
                self.add(piece, found.starts[ordinary], found.ends[ordinary])
            else:
                self.add(piece, found.starts, found.ends)

    def _grow(self, length: int) -> None:
        """Make larger what is full, so that one more string of some length has room."""
        old = self._tables
        short, entries, arena = old.short.shape[0], old.entries.shape[0], old.arena.shape[0]
        if length <= MAX_SHORT:
            short *= 2
        elif old.used[LONG] >= entries:
            entries *= 2
        else:
            arena = 2 * max(arena, length)
        self._tables = empty_tables(short, entries, arena)
        move_counts(old, self._tables)

    def counts(self) -> PretokenCounts:
        """Return what was counted so far."""
        number = len(self)
        room = int(MAX_SHORT * self._tables.used[SHORT] + self._tables.used[ARENA])
        data, offsets = np.empty(room, np.uint8), np.empty(number + 1, np.int64)
        counts = np.empty(number, np.uint64)
        size = list_counts(self._tables, data, offsets, counts)
        return PretokenCounts.sorted(data[:size], offsets, counts)


def count_pretokens(
    data: ArrayLike,
    offsets: ArrayLike,
    splitter: Splitter,
    specials: Sequence[str] = (),
    normalizer: str | None = None,
) -> PretokenCounts:
    """Count the pre-tokens of documents.

    Args:
        data: uint8, shape (num_bytes,); UTF-8.
        offsets: integers, shape (num_documents + 1,).
        splitter: the compiled split pattern.
        specials: special tokens, which are cut out first.
        normalizer: what is done to the text between them; see `normalizers`.
    """
    counter = PretokenCounter()
    counter.add_documents(data, offsets, splitter, specials, normalizer)
    return counter.counts()
