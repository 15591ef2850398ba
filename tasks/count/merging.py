"""Merge sorted counts as they are read, in bounded memory, and the tree of the merges of many shards.

One block of each stream is in memory. What is not greater than the least of the blocks' last pre-tokens is
added up and yielded, so the sum depends neither on blocks nor on the order of streams. A part is a range of
shards whose counts are in one artifact; while there are more than `FAN_IN`, each `FAN_IN` consecutive ones
are merged.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokmill.tasks.formats.counts import size_of
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped

FAN_IN = 32
MOST_LEVELS = 3
"""Levels of merges; enough for 1,048,576 shards per source. `count` adds up more parts all the same."""


def level_of(num_shards: int, level: int) -> list[list[range]]:
    """Return which parts are merged on a level, in order: groups of one part stay as they are."""
    parts = parts_of(num_shards, level)
    if len(parts) <= FAN_IN:
        return [[part] for part in parts]
    return [parts[first : first + FAN_IN] for first in range(0, len(parts), FAN_IN)]


def parts_of(num_shards: int, num_levels: int = MOST_LEVELS) -> list[range]:
    """Return the parts that remain after some levels of merges, in order."""
    if not num_levels:
        return [range(index, index + 1) for index in range(num_shards)]
    return [joined(group) for group in level_of(num_shards, num_levels - 1)]


def joined(group: Sequence[range]) -> range:
    """Return consecutive parts as one."""
    return range(group[0].start, group[-1].stop)


_COPIES, _BYTES_PER_ROW = 6, 160  # of a block: as read and as cut, in the sum, and waiting to be written
_LEAST_ROWS, _MOST_ROWS = 1 << 8, 1 << 15


def merge_streams(streams: Iterable[Iterable[PretokenCounts]]) -> Iterator[PretokenCounts]:
    """Yield the sum of streams, in blocks."""
    reading = [stream for stream in map(_Stream, streams) if stream.fill()]
    while reading:
        raise_if_stopped()
        bound = min(stream.last for stream in reading)
        yield PretokenCounts.merge([stream.take(bound) for stream in reading])
        reading = [stream for stream in reading if stream.fill()]


def block_rows(paths: Sequence[Path], memory_bytes: int) -> int:
    """How many rows of each file, 256 to 32,768, may be in memory at a time for a merge in `memory_bytes`."""
    sizes = [size_of(path) for path in paths]
    widest = max((size.num_bytes / size.num_distinct for size in sizes if size.num_distinct), default=0.0)
    per_row = _BYTES_PER_ROW + _COPIES * widest
    rows = int(memory_bytes / (per_row * min(max(len(paths), 1), FAN_IN)))
    return min(max(rows, _LEAST_ROWS), _MOST_ROWS)


class _Stream:
    """Sorted counts, of which one block is in memory."""

    def __init__(self, blocks: Iterable[PretokenCounts]) -> None:
        self._blocks = iter(blocks)
        self._block = PretokenCounts.from_dict({})
        self._first = 0

    def fill(self) -> bool:
        """Read the next block if this one is used up; return whether there is one."""
        while self._first == len(self._block):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._first, self._block = 0, block
        return True

    @property
    def last(self) -> bytes:
        """The greatest pre-token of the block."""
        return self._pretoken(len(self._block) - 1)

    def take(self, bound: bytes) -> PretokenCounts:
        """Remove the pre-tokens up to `bound` from the block, and return their counts."""
        block, first, end = self._block, self._first, len(self._block)
        if self.last > bound:
            end = first + bisect_right(range(first, end), bound, key=self._pretoken)
        self._first = end
        offsets = block.offsets[first : end + 1]
        data = block.data[offsets[0] : offsets[-1]]
        return PretokenCounts(data, offsets - offsets[0], block.counts[first:end])

    def _pretoken(self, row: int) -> bytes:
        block = self._block
        return block.data[block.offsets[row] : block.offsets[row + 1]].tobytes()
