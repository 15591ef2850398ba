"""Decompressors that return a bounded amount of output per call.

A few bytes of a compressed file can decompress to gigabytes. So a frame returns at most `max_length` bytes
per call, and keeps the input that it has not processed. bz2, lzma and lz4 do so themselves. zlib returns
unprocessed input to the caller. zstandard always decompresses all of its input, so it gets only a few blocks
at a time: a block holds at most 128 KiB (RFC 8878, section 3.1.1.2).
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

# The limit of zstd's command with --long=31; larger windows are rejected, as in a damaged file.
_MAX_WINDOW_BYTES = 1 << 31
_MAX_BLOCK_BYTES = 128 << 10
_MAGIC = 0xFD2FB528
# Sizes in bytes of the frame header's fields, by their flags (RFC 8878, section 3.1.1.1).
_DICTIONARY_BYTES = (0, 1, 2, 4)
_SIZE_BYTES = (0, 2, 4, 8)
_RUN_LENGTH = 1


class Frame(Protocol):
    """One frame of a compressed file."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Take compressed bytes, and return at most `max_length` decompressed ones."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether further input is needed for more output."""
        ...

    @property
    def eof(self) -> bool:
        """Whether the frame has ended, and all of it was returned."""
        ...

    @property
    def unused_data(self) -> bytes | None:
        """The input after the end of the frame."""
        ...


class _GzipFrame:
    """A member of a gzip file."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        given = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # Even without input, zlib may still hold output that exceeded `max_length`.
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
        self._ahead: int | None = None  # bytes before the next block's header; None until the frame's is read
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
        """Return how much held input the next `num_blocks` blocks take; 0 if more input is needed."""
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
    """Return the length of a frame's header; None if more bytes are needed.

    For a skippable frame, which has no content, and for invalid input, which the codec rejects, the result is
    larger than any input, so that the codec gets all of it.
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
    """Return the exceptions of a codec for invalid input; lz4 and bz2 have none of their own."""
    if codec == "zst":
        import zstandard

        return (zstandard.ZstdError,)
    return (zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError, ValueError)
