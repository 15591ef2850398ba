"""Compressed files, decompressed in parts of bounded size, because a few bytes can decompress to gigabytes.

The first bytes tell how a file is compressed, whatever its name. A file is one or more complete frames, one
after the other, and perhaps zero bytes. A frame returns at most `max_length` bytes per call, and keeps its
other input. zstandard always decompresses all input, so it gets a few blocks at a time, of at most 128 KiB
each (RFC 8878, section 3.1.1.2).
"""

import bz2
import codecs
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tokmill.tasks.core.faults import is_of_machine
from tokmill.tasks.formats.text.quarantine import BrokenFileError
from tokmill.tasks.formats.text.sources import compression_of

BLOCK_BYTES = 1 << 20
HEAD_BYTES = 4 << 10
_COMPRESSED_BYTES = 64 << 10
_ZSTD = b"\x28\xb5\x2f\xfd"
_MAGIC = re.compile(
    rb"(?P<gz>\x1f\x8b\x08)|(?P<zst>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)|(?P<xz>\xfd7zXZ\0)"
    rb"|(?P<bz2>BZh[1-9](1AY&SY|\x17rE8P\x90))|(?P<lz4>\x04\x22\x4d\x18)"
)
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# The limit of zstd's command with --long=31; larger windows are rejected, as in a damaged file.
_MAX_WINDOW_BYTES = 1 << 31
_MAX_BLOCK_BYTES = 128 << 10
# Sizes in bytes of the frame header's fields, by their flags (RFC 8878, section 3.1.1.1).
_DICTIONARY_BYTES = (0, 1, 2, 4)
_SIZE_BYTES = (0, 2, 4, 8)
_RUN_LENGTH = 1
# Of invalid input; lz4 and bz2 have none of their own.
_ERRORS = (zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError, ValueError)


class Readable(Protocol):
    """What is read from one position on, such as an open file."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, at least one before the end, and none there."""
        ...


def codec_in(beginning: bytes, name: str = "") -> str | None:
    """Return a file's compression by its first bytes, whatever its name; None if they are not compressed.

    If they are neither those of a compression nor text, the file is damaged and its name decides.
    """
    magic, by_name = _MAGIC.match(beginning), compression_of(name)
    if magic:  # zst and lz4 have the same skippable frames
        codec = next(codec for codec, found in magic.groupdict().items() if found)
        return "lz4" if by_name == "lz4" and codec == "zst" and not beginning.startswith(_ZSTD) else codec
    return None if by_name is None or _is_readable(beginning[:HEAD_BYTES]) else by_name


def _is_readable(beginning: bytes) -> bool:
    """Whether bytes are UTF-8 without control characters, or those of an uncompressed format."""
    if not beginning or _CONTROLS.search(beginning):
        return beginning.startswith((b"PAR1", b"ARROW1"))
    try:
        codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return False
    return True


def decompressed(file: Readable, codec: str) -> Iterator[bytes]:
    """Yield the content of a compressed file in small parts.

    Raises:
        BrokenFileError: the file is damaged; everything before the damage was yielded. A frame's checksum
            comes at its end, so only whole frames are sound, and the error says how many bytes these are.
        MemoryError: the codec runs out of memory.
    """
    frame: Any = None  # has decompress(data, max_length), needs_input, eof and unused_data
    num_frames = num_bytes = sound_bytes = 0
    while taken := file.read(_COMPRESSED_BYTES):
        while taken or not (frame is None or frame.needs_input):
            if frame is None:
                taken = taken.lstrip(b"\0") if num_frames else taken
                frame, num_frames = (_FRAMES[codec](), num_frames + 1) if taken else (None, num_frames)
                continue
            try:
                part = frame.decompress(taken, BLOCK_BYTES)
            except _ERRORS as error:
                if is_of_machine(error):
                    raise MemoryError(str(error)) from error
                raise BrokenFileError("broken_archive", str(error), sound_bytes=sound_bytes) from error
            yield part
            num_bytes += len(part)
            taken = (frame.unused_data or b"") if frame.eof else b""
            frame, sound_bytes = (None, num_bytes) if frame.eof else (frame, sound_bytes)
    if frame is not None or not num_frames:
        problem = f"ends in the middle of frame {num_frames}" if num_frames else "is empty"
        raise BrokenFileError("truncated_archive", f"the {codec} file {problem}", sound_bytes=sound_bytes)


class _GzipFrame:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        part = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # Even without input, zlib may still hold output that exceeded `max_length`.
        self.needs_input = not self._inner.unconsumed_tail and len(part) < max_length
        self.eof, self.unused_data = self._inner.eof, self._inner.unused_data
        return part


class _ZstdFrame:
    def __init__(self) -> None:
        import zstandard

        self._inner = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
        self._error = zstandard.ZstdError
        self._held = b""
        self._ahead: int | None = None  # bytes before the next block's header; None until the frame's is read
        self._is_last = False
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._held += data
        length = self._length(max(1, max_length // _MAX_BLOCK_BYTES))
        taken, self._held = self._held[:length], self._held[length:]
        self.needs_input = not length or not self._held
        try:
            part: bytes = self._inner.decompress(taken) if taken else b""
        except self._error as error:
            raise ValueError(str(error)) from error
        self.eof, self.unused_data = bool(self._inner.eof), bytes(self._inner.unused_data) + self._held
        return part

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
    if not held.startswith(_ZSTD):
        return 1 << 62
    flags = held[4]
    is_single = flags >> 5 & 1
    return 5 + (not is_single) + _DICTIONARY_BYTES[flags & 3] + (_SIZE_BYTES[flags >> 6] or is_single)


def _lz4() -> Any:
    import lz4.frame

    return lz4.frame.LZ4FrameDecompressor()


_FRAMES: dict[str, Callable[[], Any]] = {
    "gz": _GzipFrame,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_WINDOW_BYTES),
    "zst": _ZstdFrame,
    "lz4": _lz4,
}
