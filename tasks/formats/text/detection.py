"""What a file holds, by its first bytes: its compression and its format, whatever its name says.

A compression and a binary format show in their first bytes, JSON in the first lines. The name decides only
between formats that look alike: text, CSV, and JSON of which nothing is complete. A format that the options
name stands, except that JSON lines and other JSON stand for each other. What tokmill does not read
(archives, PDF, databases, pointers of Git LFS, …) is refused by its own name, and never read as text.
"""

import io
import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.compression import HEAD_BYTES, codec_in, decompressed
from tokmill.tasks.formats.text.content import read_bytes
from tokmill.tasks.formats.text.quarantine import BrokenFileError
from tokmill.tasks.formats.text.sources import Format, ReadOptions, format_by_name
from tokmill.tasks.remote.location import Location

# How much is read at a time, until it shows what the file holds; a compressed block of lz4 has up to 4 MiB.
_BEGINNINGS = (HEAD_BYTES, 128 << 10, 5 << 20)
_ENOUGH_BYTES = 128 << 10
_FEW = 20  # lines

_LFS = rb"version https://git-lfs\.github\.com/spec/v\d\n(ext|oid) "
_MEDIAWIKI = rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<mediawiki\s"
_PROGRAM = rb"\x7fELF|MZ[^\n]{2,60}\0\0|\xca\xfe\xba\xbe|[\xfe\xcf]\xed\xfa|\0asm"
_SOUND = rb"ID3[\x02-\x04]\0|fLaC\0|OggS\0|\x1a\x45\xdf\xa3|\0\0\0.ftyp|RIFF.{4}(WAVE|AVI ).{7}\0"
_COMPRESSED = rb"\x1f[\x9d\xa0]|\x02\x21\x4c\x18|\x5d\0\0.{2}\xff|\xff\x06\0\0sNaPpY|\x89LZO\0"
_OFFICE = rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ARCHIVE_OF_PAGES = rb"WARC/\d\.\d+\r?\n[A-Za-z-]+:|filedesc://\S+ \d"
# What is not read, and what to do: the first bytes, and the name, of each.
_UNSUPPORTED: dict[str, dict[bytes, str]] = {
    "unpack it, and name the files in it": {
        rb"PK(\x03\x04|\x05\x06)": "a ZIP archive (also .docx, .xlsx, .epub, .npz, .jar)",
        rb"(.{257}ustar[\0 ]|.{99}\0([0-7 ]{7}\0){3})": "a tar archive",
        rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
        rb"Rar!\x1a\x07": "a RAR archive",
        rb"!<arch>\n.{58}`\n": "an ar archive",
    },
    "extract its text first, e.g. with trafilatura": {
        _ARCHIVE_OF_PAGES: "a WARC or ARC archive of web pages"
    },
    "extract its text first, e.g. with wikiextractor": {_MEDIAWIKI: "a dump of MediaWiki in XML"},
    "run 'git lfs pull'": {_LFS: "a pointer of Git LFS instead of the file"},
    "run 'git annex get'": {rb"/annex/objects/\S+\n?\Z": "a pointer of git-annex instead of the file"},
    "extract its text first, e.g. with pdftotext": {rb"%PDF-\d\.\d\s*[\r\n]": "a PDF document"},
    "extract its text first, e.g. with LibreOffice": {
        _OFFICE: "a document of an old Microsoft Office",
        rb"\{\\rtf\d*\s*[\\{]": "an RTF document",
    },
    "extract its text first, e.g. with ps2ascii": {rb"%!PS-Adobe-\d": "a PostScript document"},
    "export its tables to Parquet or CSV first": {
        rb"SQLite format 3\0": "an SQLite database",
        rb".{8}DUCK.\0{7}": "a DuckDB database",
    },
    "convert it to Parquet or JSON lines first": {
        rb"\x89HDF\r\n\x1a\n": "an HDF5 file",
        rb"\x93NUMPY": "a NumPy array",
        rb"Obj\x01": "an Avro file",
        rb"ORC.{0,8}[\0-\x08]": "an ORC file",
        rb"\x80[\x02-\x05]": "a pickle of Python objects",
    },
    "decrypt it first": {rb"PARE.{0,8}[\0-\x08]": "an encrypted Parquet file"},
    "write it again as version 2": {rb"FEA1\0{4}": "a Feather file of version 1"},
    "exclude it": {
        rb"GGUF[\0-\x0f]\0|.{5}\0\0\0\{\"": "a model's weights",
        rb"\x89PNG\r\n\x1a\n": "a PNG image",
        rb"\xff\xd8\xff": "a JPEG image",
        rb"GIF8[79]a.{1,6}[\0-\x08]": "a GIF image",
        rb"RIFF.{4}WEBP.{7}\0": "a WebP image",
        rb"II\*\0|MM\0\*": "a TIFF image",
        rb"BM.{4}\0\0\0\0": "a BMP image",
        rb"\0\0\x01\0.\0": "an icon",
        _SOUND: "sound or video",
        _PROGRAM: "a program",
    },
    "decompress it": {_COMPRESSED: "data of an unsupported compression"},
}
_PATTERNS = {
    pattern: f"{name}: {fix}" for fix, known in _UNSUPPORTED.items() for pattern, name in known.items()
}
_ANY = re.compile(b"|".join(b"(?:%s)" % pattern for pattern in _PATTERNS), re.DOTALL)
_PARQUET = re.compile(rb"PAR1.{0,8}[\0-\x08\x0e-\x1f]", re.DOTALL)
_ARROW = re.compile(rb"ARROW1\0\0|\xff{4}..[\0-\x0f]\0", re.DOTALL)  # a file, or a stream

_JSON = json.JSONDecoder(parse_int=str, parse_float=str)
_OBJECT_FOLLOWS = re.compile(r"[\s,]*\{")


class UnsupportedFileError(SourceError):
    """A file holds what tokmill does not read.

    Attributes:
        detail: what it holds, and what to do.
    """

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name} holds {detail}")
        self.detail = detail


class Contents(NamedTuple):
    """What a file holds."""

    format: Format  # the format to read it in
    codec: str | None  # its compression, or None


def format_of(path: Location, options: ReadOptions) -> Format:
    """Return the format of a file; see `contents_of`."""
    return contents_of(path, options).format


def contents_of(path: Location, options: ReadOptions, *, any_column: bool = False) -> Contents:
    """Return what a file holds."""
    data, codec, is_whole = _beginning(path)
    if problem := _unsupported(data, codec):
        raise UnsupportedFileError(path.name, problem)
    binary: Format | None = "parquet" if _PARQUET.match(data) else "arrow" if _ARROW.match(data) else None
    if binary is not None:
        if options.format not in ("auto", binary):
            problem = f"{binary.title()} and not {options.format}: set format = 'auto'"
            raise UnsupportedFileError(path.name, problem)
        return Contents(binary, codec)
    by_name = format_by_name(path.name) if options.format == "auto" else options.format
    if options.format not in ("auto", "json", "jsonl"):
        return Contents(by_name, codec)
    text = data.decode(options.encoding, "replace").lstrip("\ufeff")
    found = _json_format(text, is_whole, options.text_column, by_name)
    if found is None and by_name == "text":
        found = _table_format(text, is_whole, None if any_column else options.text_column)
    return Contents(found or by_name, codec)


def _beginning(path: Location) -> tuple[bytes, str | None, bool]:
    """Return a file's first decompressed bytes, its compression, and whether these are all of its content."""
    data, codec, is_whole = b"", None, True
    for most in _BEGINNINGS:
        raw = read_bytes(path, most)
        codec = codec_in(raw, path.name)
        is_damaged = codec is not None and codec_in(raw) is None
        data = raw if codec is None or is_damaged else _first_decompressed(raw, codec)
        is_whole = len(raw) < most and (codec is None or len(data) < _ENOUGH_BYTES)
        if is_whole or (
            data and (data.count(b"\n") > 1 or len(data) >= _ENOUGH_BYTES or not _may_be_json(data))
        ):
            break
    return data, codec, is_whole


def _may_be_json(data: bytes) -> bool:
    return data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[", b"")


def _first_decompressed(raw: bytes, codec: str) -> bytes:
    data = b""
    with suppress(BrokenFileError):
        for block in decompressed(io.BytesIO(raw), codec):
            data += block
            if len(data) >= _ENOUGH_BYTES:
                break
    return data


def _unsupported(data: bytes, codec: str | None) -> str | None:
    """Return what a file holds if tokmill does not read it, and what to do."""
    if codec is not None and codec_in(data) is not None:
        return "data that was compressed twice: decompress it once"
    if not _ANY.match(data):
        return None
    return next(said for pattern, said in _PATTERNS.items() if re.match(pattern, data, re.DOTALL))


def _json_format(text: str, is_whole: bool, column: str, by_name: Format) -> Format | None:
    """Return the format of a text that is JSON lines, an array of objects, or objects in another layout.

    Two lines that are objects are JSON lines; a single one, if its name says so or it has the text column.
    """
    text, is_named = text.lstrip(" \t\r\n"), by_name in ("json", "jsonl")
    lines = [line for line in text.split("\n", _FEW) if line.strip()]
    if text.startswith("["):
        return _array_format(text, lines, column, by_name)
    if not re.match(r'\{\s*["}]', text):
        return None
    first, is_long = _decoded(_JSON.decode, lines[0]), len(lines) == 1 and not is_whole
    if first is None and is_named:
        value = _decoded(_JSON.raw_decode, text)
        if value and _OBJECT_FOLLOWS.match(text, value[1]):
            return "json"
    if first is None or is_long:
        return "jsonl" if is_long else None
    if len(lines) == 1:
        return "jsonl" if column in first else None
    is_cut = len(lines) == 2 and not is_whole and lines[1][0] == "{"
    return "jsonl" if is_cut or isinstance(_decoded(_JSON.decode, lines[1]), dict) else None


def _array_format(text: str, lines: list[str], column: str, by_name: Format) -> Format | None:
    start = re.match(r"\[\s*(?=[{\]])", text)
    if not start or (len(lines) > 1 and _decoded(_JSON.decode, lines[0])):  # a list on each line
        return None
    element = _decoded(_JSON.raw_decode, text, start.end())
    is_json = by_name in ("json", "jsonl") or (by_name == "text" and element and column in element[0])
    return "json" if is_json else None


def _decoded(decode: Callable[..., Any], *arguments: object) -> Any:
    """Return what a decoder of JSON returns; None if the text is not JSON."""
    with suppress(ValueError, RecursionError):
        return decode(*arguments)
    return None


def _table_format(text: str, is_whole: bool, column: str | None) -> Format | None:
    """Return "csv" for lines with tabs between fields, of which the first names the text column."""
    lines = text.split("\n", _FEW)[: _FEW if is_whole else -1]
    fields = [line.rstrip("\r").split("\t") for line in lines if line.strip()]
    if len(fields) < 2 or "\t" not in text.partition("\n")[0]:
        return None
    if column is None:
        return "csv" if len({len(row) for row in fields}) == 1 else None
    return "csv" if column in (name.strip('"') for name in fields[0]) and len(fields[1]) > 1 else None
