"""Rows of a file: what separators end, such as lines, in whole blocks.

Separators are found from left to right and do not overlap. A separator ends a row, so a separator at the end
of the file does not begin another row; bytes after the last separator are a row. A row longer than a limit is
truncated to one byte more than the limit.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokmill.tasks.formats.text.documents import Ints


class Separator:
    r"""What ends a row; with `any_line_end`, each `\n` of it may be a `\r\n`. `longest` is its most bytes."""

    def __init__(self, text: bytes, *, any_line_end: bool = False) -> None:
        self._text = text
        ends = text.count(b"\n") if any_line_end else 0
        self.longest = len(text) + ends
        self._pattern = re.compile(re.escape(text).replace(b"\\\n", b"\r?\n")) if ends else None
        self._overlaps = any(text.startswith(text[index:]) for index in range(1, len(text)))

    def end(self, block: bytes | bytearray, start: int = 0) -> int:
        """Return the end of the first one that begins at `start` or later; -1 if there is none."""
        if self._pattern is not None and block.find(b"\r", start) >= 0:
            match = self._pattern.search(block, start)
            return -1 if match is None else match.end()
        place = block.find(self._text, start)
        return place if place < 0 else place + len(self._text)

    def last_end(self, block: bytearray) -> int:
        """Return the end of the last one that `spans` finds in a block, which has at least one."""
        if self._overlaps or self._pattern is not None:
            return int(self.spans(block)[1][-1])
        return block.rfind(self._text) + len(self._text)

    def spans(self, block: bytes | bytearray) -> tuple[Ints, Ints]:
        """Return the starts and the ends of all, from left to right, without overlaps."""
        if self._pattern is not None and b"\r" in block:
            places = np.array([match.span() for match in self._pattern.finditer(block)], dtype=np.int64)
            return places.reshape(-1, 2)[:, 0], places.reshape(-1, 2)[:, 1]
        buffer = np.frombuffer(block, dtype=np.uint8)
        starts = np.flatnonzero(buffer[: max(0, len(block) - len(self._text) + 1)] == self._text[0])
        for index in range(1, len(self._text)):
            starts = starts[buffer[starts + index] == self._text[index]]
        if self._overlaps:
            kept: list[int] = []
            for place in starts.tolist():
                if not kept or place >= kept[-1] + len(self._text):
                    kept.append(place)
            starts = np.array(kept, dtype=np.int64)
        return starts, starts + len(self._text)


NEWLINE = Separator(b"\n")


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Consecutive rows."""

    block: bytearray  # the bytes of whole rows
    starts: Ints  # int64[n], index in `block` at which each row begins
    stops: Ints  # int64[n], start of its separator; the block's length for a last row without one
    ends: Ints  # int64[n], end of its separator
    position: int  # position of `block` in the file's content

    @property
    def bounds(self) -> Ints:
        """The bounds of the rows with their separators in the file's content, int64[n, 2]."""
        return np.stack((self.starts, self.ends), axis=1) + self.position


def row_blocks(stream: Iterator[tuple[bytes, int]], separator: Separator, limit: int) -> Iterator[RowBlock]:
    """Yield the rows of consecutive blocks with their positions, about a block at a time; see `whole_rows`.

    If a compressed file is damaged, the row with the damage is lost.
    """
    for block, position in whole_rows(stream, separator, limit):
        stops, ends = separator.spans(block)
        if not len(ends) or ends[-1] < len(block):  # the last row of the file may lack its separator
            stops, ends = np.append(stops, len(block)), np.append(ends, len(block))
        yield RowBlock(block, np.concatenate(([0], ends[:-1])), stops, ends, position)


def whole_rows(
    stream: Iterator[tuple[bytes, int]], separator: Separator, limit: int
) -> Iterator[tuple[bytearray, int]]:
    """Rearrange consecutive blocks so that each ends with a separator; only the last may lack it.

    A single row may take most of the memory. So it grows in one buffer, which the system can move without
    copying, and no reference to it is kept after it is yielded. A row of more than `limit` bytes is truncated
    to `limit` + 1 bytes, and is a block of its own without a separator.
    """
    growing, start = bytearray(), 0
    seen: bytes | None = None  # of a row that is too long: its last bytes, which may begin a separator
    for block, position in stream:
        if seen is not None:
            joined = seen + block
            end = separator.end(joined)
            if end < 0:
                seen = _last(joined, separator)
                continue
            yield growing, start
            end -= len(seen)
            growing, seen = bytearray(), None
            block, position = block[end:], position + end  # noqa: PLW2901
        start = start if growing else position
        searched = max(0, len(growing) - separator.longest + 1)
        growing += block
        if separator.end(growing, searched) < 0:
            if len(growing) >= limit + separator.longest:
                seen = _last(growing, separator)
                del growing[limit + 1 :]
            continue
        end = separator.last_end(growing)
        finished, growing = [growing], growing[end:]
        del finished[0][end:], block
        yield finished.pop(), start
        start += end
    if growing:
        yield growing, start


def _last(block: bytes | bytearray, separator: Separator) -> bytes:
    return bytes(block[1 - separator.longest :]) if separator.longest > 1 else b""
