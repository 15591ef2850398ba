"""Read the bytes of plain and compressed files as a stream of blocks, from any position.

The first bytes tell how a file is compressed, whatever its name. gz, zst, bz2, xz and lz4 all go through one
loop over a decompressor object: a file is one or more frames, one after the other, and each must be complete.
In a plain file a position is reached by seeking; in a compressed one by decompressing and discarding
everything before it. A damaged compressed file raises `BrokenArchiveError`, after everything before the
damage was yielded. But a frame's checksum comes at its end, so of what was yielded only whole frames are
sound, and the error says how many bytes these are. Zero bytes after the last frame are padding. At most
`BLOCK_BYTES` are decompressed at a time.

Open a file to read its bytes, wherever it is.

A local file is opened as such. An object is read in ranges: ahead of the reader, where it is read from one
position on, and on demand where a format needs random access (`tasks.formats.text.columnar`).
"""

import codecs
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import is_of_machine, refuse_irregular, unreadable
from tokmill.tasks.formats.text.codecs import FRAMES, Frame, errors_of
from tokmill.tasks.formats.text.sources import UTF_8, compression_of
from tokmill.tasks.remote.location import Location, RemoteFile
from tokmill.tasks.remote.objects import stat

BLOCK_BYTES = 1 << 20
FIRST_BLOCK_BYTES = 128 << 10
_COMPRESSED_BYTES = 64 << 10
HEAD_BYTES = 4 << 10
# Stands for the compression of a file of which nothing is known.
DETECTED = "detected"
_ZSTD = b"\x28\xb5\x2f\xfd"
_MAGIC = re.compile(
    rb"(?P<gz>\x1f\x8b\x08)|(?P<zst>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)|(?P<xz>\xfd7zXZ\0)"
    rb"|(?P<bz2>BZh[1-9](1AY&SY|\x17rE8P\x90))|(?P<lz4>\x04\x22\x4d\x18)"
)
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")


class BrokenArchiveError(Exception):
    """A compressed file ends early or does not decompress; internal, becomes a bad document.

    Attributes:
        reason: `truncated_archive` or `broken_archive`.
        detail: the codec's message.
        sound_bytes: decompressed bytes of the frames before the damage.
    """

    def __init__(self, reason: str, detail: str, sound_bytes: int) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.sound_bytes = sound_bytes


def codec_in(beginning: bytes, name: str = "") -> str | None:
    """Return a file's compression by its first bytes, whatever its name; None if they are not compressed.

    If they are neither those of a compression nor text, the file is damaged and its name decides.
    """
    found, by_name = _MAGIC.match(beginning), compression_of(name)
    if found:  # zst and lz4 have the same skippable frames
        codec = next(codec for codec, magic in found.groupdict().items() if magic)
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


def codec_of(path: Location) -> str | None:
    """Return a file's compression by its first bytes."""
    try:
        with opened(path, 0, HEAD_BYTES) as file:
            return codec_in(file.read(HEAD_BYTES), path.name)
    except OSError as error:
        raise unreadable(path, error) from error


def damage_of(path: Location) -> BrokenArchiveError | None:
    """Read a file to its end, and return its damage if it is a damaged compressed one."""
    try:
        for _ in blocks(path) if codec_of(path) else ():
            pass
    except BrokenArchiveError as error:
        return error
    return None


def blocks(
    path: Location,
    start: int = 0,
    end: int | None = None,
    encoding: str = UTF_8,
    sound_bytes: int | None = None,
    codec: str | None = DETECTED,
) -> Iterator[bytes]:
    """Yield the bytes `start:end` of a file's decompressed content, in blocks of `BLOCK_BYTES` or more.

    Content in another encoding is converted to UTF-8, and positions count the converted bytes. Invalid bytes
    become 0xff, which is invalid in UTF-8, so that the check of documents finds them. The first few blocks
    are smaller, so that the consumers of a reading thread can start early. If it is known that only the first
    `sound_bytes` of a damaged file are sound, no others are yielded before the error. The compression is
    detected unless it is known.

    Raises:
        SourceError: the file cannot be opened or has another encoding, or an object changes while it is read.
        MachineError: the disk, the network share or the object storage fails.
        MemoryError: the codec runs out of memory.
        BrokenArchiveError: a compressed file is damaged; everything before the damage was yielded.
    """
    if codec == DETECTED:
        codec = codec_of(path)
    as_it_is = codec is None and encoding == UTF_8
    try:
        with opened(path, start, end) if as_it_is else opened(path) as file:
            if as_it_is:
                stream = _plain(file)
            else:
                inside = _plain(file) if codec is None else _sound(decompressed(file, codec), sound_bytes)
                stream = _after(inside if encoding == UTF_8 else _recoded(inside, encoding), start)
            yield from _gathered(_until(stream, None if end is None else end - start))
    except UnicodeError as error:
        raise SourceError(
            f"{path}: cannot be read as {encoding}: {error}; set its encoding, e.g. 'utf-16-le' "
            "or 'utf-16-be' if it has no byte order mark"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


class Readable(Protocol):
    """What is read from one position on, such as an open file."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, at least one before the end, and none there."""
        ...


def _plain(file: Readable) -> Iterator[bytes]:
    size = FIRST_BLOCK_BYTES
    while block := file.read(size):
        yield block
        size = min(2 * size, BLOCK_BYTES)


def decompressed(file: Readable, codec: str) -> Iterator[bytes]:
    """Yield the content of a compressed file in small parts.

    Raises:
        BrokenArchiveError: the file is damaged; everything before the damage was yielded.
        MemoryError: the codec runs out of memory.
    """
    frame: Frame | None = None
    num_frames = num_bytes = sound_bytes = 0
    while taken := file.read(_COMPRESSED_BYTES):
        while taken or not (frame is None or frame.needs_input):
            if frame is None:
                taken = taken.lstrip(b"\0") if num_frames else taken
                frame, num_frames = (FRAMES[codec](), num_frames + 1) if taken else (None, num_frames)
                continue
            yield (given := _step(frame, taken, codec, sound_bytes))
            num_bytes += len(given)
            taken = (frame.unused_data or b"") if frame.eof else b""
            frame, sound_bytes = (None, num_bytes) if frame.eof else (frame, sound_bytes)
    if frame is not None or not num_frames:
        reason = "truncated_archive"
        problem = f"ends in the middle of frame {num_frames}" if num_frames else "is empty"
        raise BrokenArchiveError(reason, f"the {codec} file {problem}", sound_bytes)


def _step(frame: Frame, taken: bytes, codec: str, sound_bytes: int) -> bytes:
    try:
        return frame.decompress(taken, BLOCK_BYTES)
    except errors_of(codec) as error:
        if is_of_machine(error):
            raise MemoryError(str(error)) from error
        reason = "broken_archive"
        raise BrokenArchiveError(reason, str(error), sound_bytes) from error


def _sound(stream: Iterator[bytes], sound_bytes: int | None) -> Iterator[bytes]:
    """Yield the first `sound_bytes`, and read the rest for its error."""
    yield from _until(stream, sound_bytes)
    for _ in stream:
        pass


def _recoded(stream: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_MARK)
    for block in stream:
        yield decoder.decode(block).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


def _marked(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


_MARK = "tokmill.marked"
codecs.register_error(_MARK, _marked)


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
    num_held, enough = 0, FIRST_BLOCK_BYTES
    broken: BrokenArchiveError | None = None
    try:
        for block in stream:
            held.append(block)
            num_held += len(block)
            if num_held >= enough:
                yield held[0] if len(held) == 1 else b"".join(held)
                held, num_held, enough = [], 0, min(2 * enough, BLOCK_BYTES)
    except BrokenArchiveError as error:
        broken = error
    if num_held:
        yield b"".join(held)
    if broken is not None:
        raise broken


_BLOCK_BYTES = 1 << 20


@contextmanager
def opened(file: Location, start: int = 0, end: int | None = None) -> Iterator[Readable]:
    """Open a file for reading on from byte `start`; nothing is read beyond `end`.

    Raises:
        SourceError: it is missing, not permitted, or not a regular file.
        MachineError: the network fails.
        OSError: the operating system cannot open it.
    """
    if isinstance(file, RemoteFile):
        from tokmill.tasks.remote.objects import streamed

        with streamed(file.url, start, end) as stream:
            yield stream
    else:
        refuse_irregular(file)
        with file.open("rb") as local:
            if start:
                local.seek(start)
            yield local


def read_all(file: Location) -> bytes:
    """Return a file's bytes.

    Raises:
        SourceError: it is missing, not permitted, or not a regular file.
        MachineError: the disk, the network or the service fails.
    """
    try:
        with opened(file) as stream:
            return b"".join(iter(lambda: stream.read(_BLOCK_BYTES), b""))
    except OSError as error:
        raise unreadable(file, error) from error


def size_of(file: Location) -> int:
    """Return a file's size in bytes.

    Raises:
        OSError: it is missing, or not permitted.
    """
    if isinstance(file, RemoteFile):
        return stat(file.url).num_bytes
    return file.stat().st_size
