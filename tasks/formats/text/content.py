"""The content of a file, wherever it is and however it is written: decompressed, in UTF-8, in blocks or rows.

In a plain file a position is reached by seeking; in a compressed or converted one by reading all before it.
Rows are what separators end, found from left to right without overlaps. One at the end of the file does not
begin another row, and bytes after the last are a row. A row is truncated to one byte more than a limit.
"""

import codecs
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import refuse_irregular, unreadable
from tokmill.tasks.formats.text.compression import BLOCK_BYTES, HEAD_BYTES, Readable, codec_in, decompressed
from tokmill.tasks.formats.text.documents import Ints
from tokmill.tasks.formats.text.quarantine import BrokenFileError
from tokmill.tasks.formats.text.sources import UTF_8
from tokmill.tasks.remote.location import Location, RemoteFile
from tokmill.tasks.remote.objects import stat
from tokmill.tokenizer.core.text import BOM

_FIRST_BLOCK_BYTES = 128 << 10
# Stands for the compression of a file of which nothing is known.
DETECTED = "detected"
# UTF-16 and UTF-32 are recognized by a byte order mark, or by the zeros among the first bytes: whether more
# than half of the first, second, third and fourth of each four bytes are zero.
_LOOKED_AT = 4096
_BYTE_ORDERS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_ZEROS: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "utf-16-le", (True, False, True, False): "utf-16-be",
    (False, True, True, True): "utf-32-le", (True, True, True, False): "utf-32-be",
    (False, False, True, True): "utf-32-le", (True, True, False, False): "utf-32-be",
}  # fmt: skip
_INVALID = "tokmill.invalid"


class Span(NamedTuple):
    """The part of a file that a reader is asked for."""

    first_row: int = 0  # number in the file of the first row
    num_rows: int | None = None  # None for all
    start: int = 0  # byte of the decompressed content to start at; 0 where the format has no such positions
    end: int | None = None  # byte to end at; None for the end of the file
    sound_bytes: int | None = None  # of a damaged compressed file, how much of its content can be trusted
    codec: str | None = DETECTED  # the file's compression, or None

    @property
    def whole_file(self) -> "Span":
        """The span of all of the file."""
        return Span(sound_bytes=self.sound_bytes, codec=self.codec)

    def is_past(self, row: int) -> bool:
        """Whether a row is after the last one."""
        return self.num_rows is not None and row >= self.first_row + self.num_rows


WHOLE = Span()


@contextmanager
def _opened(file: Location, start: int = 0, end: int | None = None) -> Iterator[Readable]:
    """Open a file for reading on from byte `start`; nothing is read beyond `end`."""
    if isinstance(file, RemoteFile):
        from tokmill.tasks.remote.objects import streamed

        with streamed(file.url, start, end) as stream:
            yield stream
    else:
        refuse_irregular(file)
        with file.open("rb") as local:
            local.seek(start)
            yield local


def read_bytes(file: Location, most: int | None = None) -> bytes:
    """Return a file's first `most` bytes, or all.

    Raises:
        SourceError: it is missing, not permitted, or not a regular file.
        MachineError: the disk, the network or the service fails.
    """
    try:
        with _opened(file, 0, most) as stream:
            return b"".join(_until(_parts(stream, BLOCK_BYTES if most is None else most), most))
    except OSError as error:
        raise unreadable(file, error) from error


def size_of(file: Location) -> int:
    """Return a file's size in bytes."""
    return stat(file.url).num_bytes if isinstance(file, RemoteFile) else file.stat().st_size


def codec_of(path: Location) -> str | None:
    """Return a file's compression by its first bytes."""
    return codec_in(read_bytes(path, HEAD_BYTES), path.name)


def damage_of(path: Location) -> BrokenFileError | None:
    """Read a file to its end, and return its damage if it is a damaged compressed one."""
    try:
        for _ in blocks(path) if codec_of(path) else ():
            pass
    except BrokenFileError as error:
        return error
    return None


def content(path: Location, span: Span, encoding: str) -> Iterator[tuple[bytes, int]]:
    """Yield the span's blocks with their positions, without a byte order mark at the start of the file."""
    position = span.start
    for block in blocks(path, span, encoding):
        if position == 0 and encoding == UTF_8:
            _refuse_other_unicode(path, block)
        marked = position == 0 and block.startswith(BOM)
        yield (block[len(BOM) :], len(BOM)) if marked else (block, position)
        position += len(block)


def _refuse_other_unicode(path: Location, block: bytes) -> None:
    """Reject UTF-16 and UTF-32 that are to be read as UTF-8, by a byte order mark or the places of zeros."""
    name = next((name for mark, name in _BYTE_ORDERS.items() if block.startswith(mark)), "")
    beginning = block[:_LOOKED_AT]
    zeros = tuple(8 * beginning[start::4].count(0) > len(beginning) for start in range(4))
    if name := name or _ZEROS.get(zeros, ""):
        raise SourceError(f"{path}: looks like {name[:6].upper()}, not UTF-8; set encoding = {name!r}")


def blocks(path: Location, span: Span = WHOLE, encoding: str = UTF_8) -> Iterator[bytes]:
    """Yield the bytes `span.start:span.end` of a file's content, in blocks of `BLOCK_BYTES` or more.

    Content in another encoding is converted to UTF-8, and positions count the converted bytes. Invalid bytes
    become 0xff, which is invalid in UTF-8, so that the check of documents finds them. The first few blocks
    are smaller, so that the consumers of a reading thread can start early.

    Raises:
        SourceError: the file cannot be opened or has another encoding, or an object changes while it is read.
        MachineError: the disk, the network share or the object storage fails.
        MemoryError: the codec runs out of memory.
        BrokenFileError: a compressed file is damaged; everything sound before the damage was yielded.
    """
    codec = codec_of(path) if span.codec == DETECTED else span.codec
    as_it_is = codec is None and encoding == UTF_8
    start, end = span.start, span.end
    try:
        with _opened(path, start, end) if as_it_is else _opened(path) as file:
            if codec is None:
                stream = _parts(file, BLOCK_BYTES)
            else:
                stream = _sound(decompressed(file, codec), span.sound_bytes)
            if encoding != UTF_8:
                stream = _recoded(stream, encoding)
            stream = stream if as_it_is else _after(stream, start)
            yield from _gathered(_until(stream, None if end is None else end - start))
    except UnicodeError as error:
        raise SourceError(
            f"{path}: cannot be read as {encoding}: {error}; set its encoding, e.g. 'utf-16-le' "
            "or 'utf-16-be' if it has no byte order mark"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _parts(file: Readable, most: int) -> Iterator[bytes]:
    size = min(_FIRST_BLOCK_BYTES, most)
    while block := file.read(size):
        yield block
        size = min(2 * size, most)


def _sound(stream: Iterator[bytes], sound_bytes: int | None) -> Iterator[bytes]:
    """Yield the first `sound_bytes`, and read the rest for its error."""
    yield from _until(stream, sound_bytes)
    for _ in stream:
        pass


def _recoded(stream: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_INVALID)
    for block in stream:
        yield decoder.decode(block).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


def _marked(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error(_INVALID, _marked)


def _after(stream: Iterator[bytes], start: int) -> Iterator[bytes]:
    """Drop the first `start` bytes."""
    for block in stream:
        if start < len(block):
            yield block[start:] if start else block
        start = max(0, start - len(block))


def _until(stream: Iterator[bytes], length: int | None) -> Iterator[bytes]:
    """Stop after `length` bytes, without requesting a further block."""
    if length is None:
        yield from stream
        return
    while length > 0 and (block := next(stream, None)) is not None:
        yield block[:length]
        length -= len(block)


def _gathered(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Join blocks until they are large enough; an error is raised after the blocks before it."""
    held: list[bytes] = []
    num_held, enough = 0, _FIRST_BLOCK_BYTES
    try:
        for block in stream:
            held.append(block)
            num_held += len(block)
            if num_held >= enough:
                yield held[0] if len(held) == 1 else b"".join(held)
                held, num_held, enough = [], 0, min(2 * enough, BLOCK_BYTES)
    except BrokenFileError:
        if num_held:
            yield b"".join(held)
        raise
    if num_held:
        yield b"".join(held)


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
        if self._overlaps or (self._pattern is not None and b"\r" in block):
            pattern = self._pattern or re.compile(re.escape(self._text))
            places = np.array([match.span() for match in pattern.finditer(block)], dtype=np.int64)
            return places.reshape(-1, 2)[:, 0], places.reshape(-1, 2)[:, 1]
        buffer = np.frombuffer(block, dtype=np.uint8)
        starts = np.flatnonzero(buffer[: max(0, len(block) - len(self._text) + 1)] == self._text[0])
        for index in range(1, len(self._text)):
            starts = starts[buffer[starts + index] == self._text[index]]
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
