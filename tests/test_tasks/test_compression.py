"""Compressed files: every codec, several frames, truncation, garbage, and starts in the middle."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from tests.test_tasks.reading import COMPRESSORS, read
from tokmill.tasks.core.errors import DocumentError
from tokmill.tasks.formats.text.content import Span, blocks
from tokmill.tasks.formats.text.quarantine import BrokenFileError
from tokmill.tasks.formats.text.shards import Limits
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.ingest.scan import scan_file

CODECS = [suffix for suffix in COMPRESSORS if suffix]
TEXT = b"".join(b"line %d of some text\n" % number for number in range(3000))


def until_the_break(path: Path, **span: int | None) -> tuple[bytes, str]:
    found = b""
    try:
        for block in blocks(path, Span(**span)):
            found += block
    except BrokenFileError as error:
        return found, error.reason
    return found, ""


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_any_range(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSORS[suffix](TEXT))

    starts, ends = (0, 1, 1000, len(TEXT), len(TEXT) + 5), (0, 1, 2000, len(TEXT), None)
    for start, end in itertools.product(starts, ends):
        if end is None or end >= start:
            assert until_the_break(path, start=start, end=end) == (TEXT[start:end], "")


@pytest.mark.parametrize("codec", CODECS)
def test_frames_and_zeros_may_follow_a_frame_and_nothing_else(tmp_path: Path, codec: str) -> None:
    path, compress = tmp_path / f"a.txt{codec}", COMPRESSORS[codec]
    frames, other = (
        compress(b"one ") + compress(b"") + compress(b"two"),
        b"\0This is no such file, by far." * 9,
    )
    for content, found in (
        (frames + b"\0" * 100, (b"one two", "")),
        (frames + other, (b"one two", "broken_archive")),
        (other, (b"", "broken_archive")),
    ):
        path.write_bytes(content)
        assert until_the_break(path) == found


@pytest.mark.parametrize("codec", CODECS)
def test_a_frame_of_nothing_is_empty_and_a_file_of_nothing_is_truncated(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.txt{codec}"
    path.write_bytes(COMPRESSORS[codec](b""))
    assert (read(path).documents, read(path).bad) == ([], [])

    path.write_bytes(b"")
    assert read(path).bad == [(0, "truncated_archive")]


@pytest.mark.parametrize("codec", CODECS)
def test_lines_before_the_break_are_documents_and_the_rest_is_one_bad_one(tmp_path: Path, codec: str) -> None:
    path, compress = tmp_path / f"a.txt{codec}", COMPRESSORS[codec]
    second = compress(TEXT)
    path.write_bytes(compress(TEXT[:-1]) + second[: len(second) // 2])

    found = read(path, format="lines")

    lines = (TEXT[:-1] + TEXT).split(b"\n")
    assert len(found.texts) >= 2999
    assert found.texts == lines[: len(found.texts)]
    assert found.bad == [(len(found.texts), "truncated_archive")]


CHECKED = COMPRESSORS | {
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".lz4": partial(lz4.frame.compress, content_checksum=True),
}
LAYOUTS: dict[str, Callable[[list[dict[str, str]]], bytes]] = {
    ".jsonl": lambda rows: b"".join(json.dumps(row).encode() + b"\n" for row in rows),
    ".json": lambda rows: json.dumps(rows).encode(),
    ".csv": lambda rows: b"text\n" + b"".join(row["text"].encode() + b"\n" for row in rows),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("codec", CODECS)
def test_no_changed_document_is_kept_of_a_file_with_a_flipped_bit(
    tmp_path: Path, codec: str, layout: str
) -> None:
    dice = random.Random(0)  # a frame is decompressed in several steps, and its checksum is in the last
    texts = [f"{number} {dice.randbytes(800).hex()}" for number in range(200)]
    content, compress = LAYOUTS[layout]([{"text": text} for text in texts]), CHECKED[codec]
    sound, damaged = compress(content[: len(content) // 2]), compress(content[len(content) // 2 :])
    path = tmp_path / f"a{layout}{codec}"
    for _ in range(8):
        place = dice.randrange(len(damaged))
        flipped = damaged[:place] + bytes([damaged[place] ^ 1 << dice.randrange(8)]) + damaged[place + 1 :]
        path.write_bytes(sound + flipped)
        scan = scan_file(path, path.name, "s", ReadOptions(on_error="quarantine"), Limits(1 << 20))
        kept = [text.decode() for batch in scan.batches for text in batch.documents()]

        assert kept == texts[: len(kept)]
        assert len(kept) == len(texts) or (len(kept) >= (0 if layout == ".csv" else 95) and scan.bad)
        if scan.bad:
            with pytest.raises(DocumentError, match=f"row {len(kept)} .*(truncated|broken)_archive"):
                scan_file(path, path.name, "s", ReadOptions(), Limits(1 << 20))


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
        assert until_the_break(path) == (text + text, "")
        if len(text) > 300:
            path.write_bytes(frame[:-1])
            assert until_the_break(path)[1] == "truncated_archive"
