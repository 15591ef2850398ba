"""Bad documents: the rule that they break, their place, and an excerpt.

A reader never raises for a bad document, but yields a `BadDocument`, and the source's `on_error` decides.
Where a file cannot be read further, `BrokenFileError` becomes one bad document for the rest. The reasons are
stable codes: they appear in accounts (`quarantined:<reason>`), in tables and in users' queries.
"""

from dataclasses import dataclass

from tokmill.tasks.core.errors import DocumentError

MAX_EXCERPT_CHARS = 200
_EXCERPT_BYTES = 4 * MAX_EXCERPT_CHARS

# reason -> (the broken rule, the fix)
REASONS: dict[str, tuple[str, str]] = {
    "invalid_utf8": ("a document must be valid UTF-8", "convert the file to UTF-8, or set its encoding"),
    "invalid_encoding": ("a document must be valid in its source's encoding", "set another encoding"),
    "broken_json": ("every line or element must be one JSON value", "repair it"),
    "not_an_object": ("every line must be a JSON object", 'write {"text": "…"} on each line'),
    "missing_column": ("every document must have the text column", "set another text_column, or add it"),
    "null_text": ("a text must not be null", "remove the row, or write an empty string"),
    "not_text": ("a text must be a string", "set another text_column, or write the text as a string"),
    "broken_csv": (
        "every row must have as many fields as the header, properly quoted",
        "repair it, or set quoting or delimiter as the file has them",
    ),
    "too_long": (
        "a document, and the line or row that holds it, must have at most max_document_bytes",
        "set format = 'lines' or 'delimited' if a file holds many documents, or raise max_document_bytes",
    ),
    "syntax_error": ("a .py file read as prose must parse", "exclude the file"),
    "unsupported_format": (
        "a file must hold text, JSON, CSV, Parquet or Arrow",
        "do that, or exclude the file",
    ),
    "truncated_archive": (
        "a compressed file must be complete to its last frame",
        "fetch or compress the file again",
    ),
    "broken_archive": ("a compressed file must decompress without error", "fetch or compress the file again"),
    "broken_file": ("a columnar file must be readable to its end", "fetch or write the file again"),
}
# Reasons whose details are messages of a library (orjson, Python's parser, a codec), which change with
# its version: error messages show them, but artifacts do not contain them.
_LIBRARY_MESSAGES = {"broken_json", "syntax_error", "truncated_archive", "broken_archive", "broken_file"}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_CONTROL |= {9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\"}
_CONTROL |= {code: f"\\u{code:04x}" for code in (*range(0xD800, 0xE000), 0x2028, 0x2029)}
# The surrogates that Python uses for bytes that are not UTF-8.
_CONTROL |= {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(128, 256)}


@dataclass(frozen=True)
class BadDocument:
    """A document that cannot be used."""

    row: int  # the document's number in its file, from 0
    reason: str  # a key of `REASONS`
    excerpt: str = ""  # at most 200 characters of it, escaped; may be empty
    detail: str = ""  # the exact problem, in a few words

    @property
    def stable_detail(self) -> str:
        """The detail if it does not depend on the version of a library; else empty."""
        return "" if self.reason in _LIBRARY_MESSAGES else self.detail


class BrokenFileError(Exception):
    """A file cannot be read further: a frame, an archive, or the text between values is broken.

    Attributes:
        sound_bytes: of a compressed file, the decompressed bytes of the frames before the damage.
    """

    def __init__(
        self, reason: str, detail: str, seen: bytes | str = "", sound_bytes: int | None = None
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.excerpt, self.sound_bytes = reason, detail, excerpt(seen), sound_bytes


def excerpt(value: bytes | str) -> str:
    """Return at most 200 printable characters of `value`; other characters and invalid bytes are escaped."""
    if isinstance(value, bytes):
        value = value[:_EXCERPT_BYTES].decode("utf-8", "surrogateescape")
    shown = value[:MAX_EXCERPT_CHARS].translate(_CONTROL)
    return shown if len(shown) <= MAX_EXCERPT_CHARS else shown[: MAX_EXCERPT_CHARS - 1] + "…"


def invalid_utf8(row: int, document: bytes) -> BadDocument:
    """Describe a document that is not UTF-8: the byte, its offset, and its surroundings."""
    try:
        document.decode("utf-8")
    except UnicodeDecodeError as error:
        around = document[max(0, error.start - 40) : error.start + 40]
        detail = (
            f"byte 0x{document[error.start]:02x} at offset {error.start} of the document ({error.reason})"
        )
        return BadDocument(row, "invalid_utf8", excerpt(around), detail)
    msg = "the document is valid UTF-8"
    raise ValueError(msg)


def too_long(row: int, document: bytes | bytearray | memoryview, limit: int) -> BadDocument:
    """Describe a document of more than `limit` bytes by the first `limit` + 1: a reader may keep no more."""
    beginning = bytes(document[: min(limit + 1, _EXCERPT_BYTES)])
    return BadDocument(row, "too_long", excerpt(beginning), f"over {limit:,} bytes")


def place_of(name: str, row: int, file_format: str) -> str:
    """Format the place of a document, with its line number if rows are lines: `a.jsonl, row 5 (line 6)`."""
    if file_format == "text":
        return name
    counting = f"line {row + 1}" if file_format in ("jsonl", "lines") else "counted from 0"
    return f"{name}, row {row} ({counting})"


def document_error(source: str, name: str, file_format: str, bad: BadDocument) -> DocumentError:
    """Return the error for a bad document of a source with `on_error = "fail"`."""
    rule, fix = REASONS[bad.reason]
    detail = f" ({bad.detail})" if bad.detail else ""
    value = f": '{bad.excerpt}'" if bad.excerpt else ""  # escaped already
    return DocumentError(
        f"source '{source}': {place_of(name, bad.row, file_format)}: {bad.reason}{detail}{value}; "
        f"{rule}; {fix}, or set on_error = 'quarantine'"
    )
