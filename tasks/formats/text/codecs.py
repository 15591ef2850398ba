"""Decompressors that never give out more than they are asked for, however little they were given.

A few bytes of a compressed file can stand for gigabytes. So a frame is asked for at most `max_length` bytes
at a time, and keeps the input that it has not come to. The codecs of the standard library and lz4 can do
that; zlib leaves its input to the caller; zstandard's object gives out all that its input stands for, which
is why it gets few blocks of it at a time: a block of a frame holds at most 128 KiB (RFC 8878, section
3.1.1.2).
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

# As much as zstd's own command takes with --long=31: more is refused, as a damaged file's would be.
_MAX_WINDOW_BYTES = 1 << 31
_MAX_BLOCK_BYTES = 128 << 10
_MAGIC = 0xFD2FB528
# Bytes of the frame header's fields by their flags (RFC 8878, section 3.1.1.1).
_DICTIONARY_BYTES = (0, 1, 2, 4)
_SIZE_BYTES = (0, 2, 4, 8)
_RUN_LENGTH = 1


class Frame(Protocol):
    """One frame of a compressed file."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Take compressed bytes, and return some of what they and those before give."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether nothing more will come without further bytes."""
        ...

    @property
    def eof(self) -> bool:
        """Whether the frame is complete, and all of it was returned."""
        ...

    @property
    def unused_data(self) -> bytes | None:
        """What was taken in after the frame's end."""
        ...


class _GzipFrame:
    """A member of a gzip file."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        given = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # With its input all taken, zlib may still hold output that there was no room for.
        self.needs_input = not self._inner.unconsumed_tail and len(given) < max_length
        return given

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


class _ZstdFrame:
    """A frame of a zstd file, decompressed a few blocks at a time."""

    def __init__(self) -> None:
        import zstandard

        self._inner = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
        self._held = b""
        self._ahead: int | None = None  # bytes before the next block's header; None before the frame's own
        self._is_last = False
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._held += data
        length = self._length(max(1, max_length // _MAX_BLOCK_BYTES))
        taken, self._held = self._held[:length], self._held[length:]
        self.needs_input = not length or not self._held
        given: bytes = self._inner.decompress(taken) if taken else b""
        return given

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._held

    def _length(self, num_blocks: int) -> int:
        """How many of the held bytes hold so many blocks at most; 0 where more are needed to tell."""
        if self._ahead is None:
            self._ahead = _header_bytes(self._held)
        if self._ahead is None:
            return 0
        length = 0
        while length < len(self._held):
            step = min(self._ahead, len(self._held) - length)
            length, self._ahead = length + step, self._ahead - step
            if self._ahead or len(self._held) - length < 3:
                break
            if self._is_last:  # a checksum, and what comes after the frame
                return len(self._held)
            if not num_blocks:
                break
            header = int.from_bytes(self._held[length : length + 3], "little")
            self._is_last = bool(header & 1)
            self._ahead = 3 + (1 if header >> 1 & 3 == _RUN_LENGTH else header >> 3)
            num_blocks -= 1
        return length


def _header_bytes(held: bytes) -> int | None:
    """Return the length of a frame's header; None where more bytes are needed to tell.

    A frame that is to be skipped stands for nothing, and what is no frame is refused by the codec: all bytes
    will do.
    """
    if len(held) < 5:
        return None
    if int.from_bytes(held[:4], "little") != _MAGIC:
        return 1 << 62
    flags = held[4]
    is_single = flags >> 5 & 1
    size = _SIZE_BYTES[flags >> 6] or is_single
    return 5 + (not is_single) + _DICTIONARY_BYTES[flags & 3] + size


def _lz4() -> Frame:
    import lz4.frame

    frame: Frame = lz4.frame.LZ4FrameDecompressor()
    return frame


FRAMES: dict[str, Callable[[], Frame]] = {
    "gz": _GzipFrame,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_WINDOW_BYTES),
    "zst": _ZstdFrame,
    "lz4": _lz4,
}


def errors_of(codec: str) -> tuple[type[Exception], ...]:
    """What a codec raises for bytes that it cannot decompress; lz4 and bz2 have no type of their own."""
    if codec == "zst":
        import zstandard

        return (zstandard.ZstdError,)
    return (zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError, ValueError)
