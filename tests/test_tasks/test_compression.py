"""Compressed files: every codec, several frames, truncation, garbage, and starts in the middle."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from tests.test_tasks.reading import COMPRESSORS, read
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.codecs import FRAMES
from tokmill.tasks.formats.text.compression import BLOCK_BYTES, BrokenArchiveError, blocks

CODECS = [suffix for suffix in COMPRESSORS if suffix]
TEXT = b"".join(b"line %d of some text\n" % number for number in range(3000))


def whole(path: Path, start: int = 0, end: int | None = None) -> bytes:
    return b"".join(blocks(path, start, end))


@pytest.fixture(params=COMPRESSORS)
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_any_range(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSORS[suffix](TEXT))

    assert whole(path) == TEXT
    for start, end in itertools.product(
        (0, 1, 1000, len(TEXT), len(TEXT) + 5), (0, 1, 2000, len(TEXT), None)
    ):
        assert whole(path, start, end) == TEXT[start:end] if end is None or end >= start else True


@pytest.mark.parametrize("codec", CODECS)
def test_frames_follow_each_other(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.txt{codec}"
    compress = COMPRESSORS[codec]
    path.write_bytes(compress(b"one ") + compress(b"") + compress(b"two ") + compress(b"three"))

    assert whole(path) == b"one two three"


@pytest.mark.parametrize("codec", CODECS)
def test_zeros_after_the_last_frame_are_padding(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.txt{codec}"
    path.write_bytes(COMPRESSORS[codec](b"text") + b"\0" * 100)

    assert whole(path) == b"text"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("content", [b"", None], ids=["no bytes", "nothing compressed"])
def test_empty_files(tmp_path: Path, codec: str, content: bytes | None) -> None:
    path = tmp_path / f"a.txt{codec}"
    path.write_bytes(COMPRESSORS[codec](b"") if content is None else content)

    assert whole(path) == b""
    assert read(path).documents == []


def until_the_break(stream: Iterator[bytes]) -> tuple[bytes, str]:
    found = b""
    try:
        for block in stream:
            found += block
    except BrokenArchiveError as error:
        return found, error.reason
    return found, ""


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_file_gives_the_text_before_the_break(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.txt{codec}"
    compress = COMPRESSORS[codec]
    first, second = compress(TEXT), compress(TEXT)
    path.write_bytes(first + second[: len(second) // 2])

    found, reason = until_the_break(blocks(path))

    assert found == (TEXT + TEXT)[: len(found)]
    assert len(found) >= len(TEXT)
    assert reason == "truncated_archive"


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_without_its_last_byte_is_truncated(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.txt{codec}"
    path.write_bytes(COMPRESSORS[codec](b"text")[:-1])

    assert until_the_break(blocks(path))[1] == "truncated_archive"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("before", [b"", b"good text"], ids=["alone", "after a frame"])
def test_a_file_without_a_frame_is_broken(tmp_path: Path, codec: str, before: bytes) -> None:
    path = tmp_path / f"a.txt{codec}"
    path.write_bytes((COMPRESSORS[codec](before) if before else b"") + b"This is no such file, by far." * 9)

    assert until_the_break(blocks(path))[1] == "broken_archive"


@pytest.mark.parametrize("codec", CODECS)
def test_lines_before_the_break_are_documents_and_the_rest_is_one_bad_one(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.txt{codec}"
    compress = COMPRESSORS[codec]
    path.write_bytes(compress(b"one\ntwo\nthr") + compress(b"ee\nfour\n")[:-3])

    found = read(path, format="lines")

    assert found.texts[:2] == [b"one", b"two"]
    assert found.texts == [b"one", b"two", b"three", b"four"][: len(found.texts)]
    assert found.bad == [(len(found.texts), "truncated_archive")]


def test_a_truncated_text_file_is_not_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(COMPRESSORS[".gz"](TEXT)[:-9])

    found = read(path)

    assert found.documents == []
    assert found.bad == [(0, "truncated_archive")]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_first_block_comes_soon_and_the_later_ones_are_not_small(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSORS[suffix](random.Random(0).randbytes(4 * BLOCK_BYTES)))

    sizes = [len(block) for block in blocks(path)]

    assert sizes[0] < BLOCK_BYTES // 4
    assert all(size >= BLOCK_BYTES for size in sizes[-3:-1])
    assert sizes[:4] == sorted(sizes[:4])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.txt cannot be read \(No such file"):
        whole(tmp_path / "none.txt")


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_decompressed_in_small_parts(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.txt{codec}"
    path.write_bytes(COMPRESSORS[codec](bytes(12 << 20)))

    sizes = [len(block) for block in blocks(path)]

    assert sum(sizes) == 12 << 20
    assert max(sizes) <= 2 * BLOCK_BYTES


@pytest.mark.parametrize("codec", CODECS)
def test_a_frame_returns_no_more_than_requested(codec: str) -> None:
    data = random.Random(0).randbytes(300_000) + bytes(3_000_000) + TEXT
    compressed = COMPRESSORS[codec](data) + b"rest"
    name = codec.removeprefix(".")
    for step in (7, 4096, len(compressed)):
        frame, found, given, position = FRAMES[name](), bytearray(), b"", 0
        while not frame.eof:
            assert position < len(compressed) or not frame.needs_input
            taken = compressed[position : position + step] if frame.needs_input else b""
            given, position = frame.decompress(taken, 128 << 10), position + len(taken)
            assert len(given) <= 256 << 10  # zstd holds one block back
            found += given

        assert found == data
        assert b"rest".startswith(frame.unused_data or b"")


def frames_of_zstd(text: bytes) -> Iterator[bytes]:
    """The same text in frames with all variants of header and end, and after a skippable frame."""
    compressor = zstandard.ZstdCompressor
    yield compressor(write_checksum=True).compress(text)
    yield compressor(write_content_size=False).compress(text)
    yield compressor(level=19, write_dict_id=False).compress(text)
    streamed = compressor(write_checksum=True).compressobj()
    yield streamed.compress(text) + streamed.flush()
    yield b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"skip!" + compressor().compress(text)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_791, 65_792, 131_072, 131_073, 700_000])
def test_zstd_frames_of_all_kinds(tmp_path: Path, size: int) -> None:
    text = (TEXT * 20)[:size] if size % 2 else random.Random(size).randbytes(size)
    path = tmp_path / "a.txt.zst"
    for frame in frames_of_zstd(text):
        path.write_bytes(frame + frame)
        assert whole(path) == text + text
        if len(text) > 300:
            path.write_bytes(frame[:-1])
            assert until_the_break(blocks(path))[1] == "truncated_archive"
