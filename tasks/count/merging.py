"""Merge sorted counts as they are read: the sum of any number of words in bounded memory.

Model. A stream is an iterator of blocks of counts whose pre-tokens increase by their bytes, also from block
to block. One block of each stream is in memory. The least of the blocks' last pre-tokens is the bound: all
pre-tokens up to it have been read, so they are added up and yielded. This uses up at least one block, whose
stream is read on.

Laws. The sum does not depend on the sizes of blocks, nor on the order of the streams. Memory is that of one
block per stream and of their sum, whatever the streams hold in all.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokmill.tasks.count.tree import FAN_IN
from tokmill.tasks.formats.counts import read_parts, size_of
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped

_COPIES, _BYTES_PER_ROW = 6, 160  # of a block: as read and as cut, in the sum, and waiting to be written
_LEAST_ROWS, _MOST_ROWS = 1 << 8, 1 << 15


def merge_streams(streams: Iterable[Iterable[PretokenCounts]]) -> Iterator[PretokenCounts]:
    """Yield the sum of streams, in blocks.

    Args:
        streams: of each, the pre-tokens increase.

    Raises:
        StopRequested: the run is being stopped.
    """
    reading = [stream for stream in map(_Stream, streams) if stream.fill()]
    while reading:
        raise_if_stopped()
        bound = min(stream.last for stream in reading)
        yield PretokenCounts.merge([stream.take(bound) for stream in reading])
        reading = [stream for stream in reading if stream.fill()]


def block_rows(paths: Sequence[Path], memory_bytes: int) -> int:
    """Return how many rows of each file may be in memory at a time for all to be merged in `memory_bytes`.

    It is never less than 256, nor more than 32,768.

    Raises:
        StoreError: a file is missing, or is not Parquet.
    """
    sizes = [size_of(path) for path in paths]
    widest = max((size.num_bytes / size.num_distinct for size in sizes if size.num_distinct), default=0.0)
    per_row = _BYTES_PER_ROW + _COPIES * widest
    rows = int(memory_bytes / (per_row * min(max(len(paths), 1), FAN_IN)))
    return min(max(rows, _LEAST_ROWS), _MOST_ROWS)


def streams_of(paths: Sequence[Path], num_rows: int) -> list[Iterator[PretokenCounts]]:
    """Return the counts in some files as streams of blocks of `num_rows`."""
    return [read_parts(path, num_rows) for path in paths]


class _Stream:
    """Sorted counts, of which one block is in memory."""

    def __init__(self, blocks: Iterable[PretokenCounts]) -> None:
        self._blocks = iter(blocks)
        self._block: PretokenCounts | None = None
        self._first = 0

    def fill(self) -> bool:
        """Read the next block if this one is used up; return whether there is one."""
        while self._block is None or self._first == len(self._block):
            self._first, self._block = 0, next(self._blocks, None)
            if self._block is None:
                return False
        return True

    @property
    def last(self) -> bytes:
        """The greatest pre-token of the block."""
        return self._pretoken(len(self._read) - 1)

    def take(self, bound: bytes) -> PretokenCounts:
        """Remove the pre-tokens up to `bound` from the block, and return their counts."""
        block, first, end = self._read, self._first, len(self._read)
        if self._pretoken(end - 1) > bound:
            low = first
            while low < end:  # bisect.bisect_right would make a list of all keys
                middle = (low + end) // 2
                low, end = (middle + 1, end) if self._pretoken(middle) <= bound else (low, middle)
        self._first = end
        offsets = block.offsets[first : end + 1]
        data = block.data[offsets[0] : offsets[-1]]
        return PretokenCounts(data, offsets - offsets[0], block.counts[first:end])

    @property
    def _read(self) -> PretokenCounts:
        if self._block is None:
            raise ValueError("the stream has ended")
        return self._block

    def _pretoken(self, row: int) -> bytes:
        block = self._read
        return block.data[block.offsets[row] : block.offsets[row + 1]].tobytes()
