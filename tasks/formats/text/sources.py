"""Sources: their files, and how documents are read from them.

`files` and `exclude` of a `SourceSpec` depend on the place and are in no fingerprint; `ReadOptions` are. A
name suggests a format and a compression; what the file holds decides (`tasks.formats.text.detection`).
"""

import codecs
from collections.abc import Iterator
from difflib import get_close_matches
from posixpath import splitext
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.stage import WithOptional

Format = Literal["text", "lines", "delimited", "jsonl", "json", "parquet", "arrow", "csv", "prose"]
Quoting = Literal["auto", "double", "backslash", "none", "escapes"]
MAX_NAME_CHARS = 80
SourceName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=MAX_NAME_CHARS)
]

UTF_8 = "utf-8"
# Codecs for domain names and for literals in programs, not for files.
_NOT_OF_FILES = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "unicode_escape")
COMPRESSIONS = {".gz": "gz", ".zst": "zst", ".bz2": "bz2", ".xz": "xz", ".lz4": "lz4"}
# Formats whose segments are ranges of bytes, so that reading can begin in the middle of a file.
BY_BYTES = ("text", "lines", "delimited", "jsonl", "csv")
WITH_COLUMNS = ("jsonl", "json", "parquet", "arrow", "csv")

_BY_SUFFIX: dict[str, Format] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".csv": "csv", ".tsv": "csv",
}  # fmt: skip


class ReadOptions(WithOptional):
    """How the documents of a source's files are read; all of it is part of the fingerprint."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    optional = frozenset({"quoting", "columns"})

    format: Literal["auto"] | Format = Field(
        default="auto",
        description=(
            "How a file holds documents. auto: by its content, which shows Parquet, Arrow, JSON lines, an "
            "array of JSON and lines with tabs whose header names the text column, and else by its suffix "
            "(.jsonl .json .csv .tsv; anything else is text). text: the whole file is one document. lines: "
            "each line is one. delimited: cut at each 'delimiter'. jsonl: one JSON object per line. json: an "
            "array of objects, or objects one after the other. parquet, arrow, csv: one per row. prose: the "
            "docstrings of .py files, and the whole of any other file."
        ),
    )
    text_column: str = Field(
        default="text",
        min_length=1,
        description="Column or JSON key that holds the text (jsonl, parquet, arrow, csv).",
    )
    id_column: str | None = Field(
        default=None,
        min_length=1,
        description="Column or JSON key that holds a document's id; empty for none.",
    )
    delimiter: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "delimited: the text that separates documents, for example <|endoftext|>. csv: the character "
            "between fields (by default that of , ; tab | by which the header has the text column)."
        ),
    )
    quoting: Quoting = Field(
        default="auto",
        description=(
            'csv: how fields are quoted. auto: as the beginning of a file shows. double: "…", with "" for a '
            'quote. backslash: "…", with \\" for a quote. none: quotes and backslashes are text. escapes: '
            "quotes are text, and \\t \\n \\\\ \\N as PostgreSQL and MySQL write them."
        ),
    )
    columns: tuple[str, ...] = Field(
        default=(),
        description="csv: names of all columns, in order, of files without a header; else empty.",
    )
    encoding: str = Field(
        default=UTF_8,
        description=(
            "Encoding of the files' text, by Python's name (shift_jis, gb18030, cp1252, utf-16). Decoding is "
            "strict: a document with invalid bytes is bad. A byte order mark is dropped."
        ),
    )
    max_document_bytes: int = Field(
        default=256 << 20,
        ge=1,
        le=(1 << 31) - 1,
        description=(
            "The most bytes of a document, and of the line or row that holds it. A longer one is a bad "
            "document; only this much of it is read into memory."
        ),
    )
    on_error: Literal["fail", "quarantine"] = Field(
        default="fail",
        description=(
            "How to treat bad documents (invalid UTF-8, broken lines, null texts, truncated archives), and "
            "a source of empty files. fail: stop with an error that names it. quarantine: leave it out, and "
            "list it with file, row and reason."
        ),
    )

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str) -> str:
        """Return Python's canonical name of the encoding."""
        try:
            found = codecs.lookup(name)
            b"a".decode(found.name, "replace")  # fails for codecs that do not decode to text
            codecs.getincrementaldecoder(found.name)
        except (LookupError, ValueError):
            found = None
        if found is None or found.name in _NOT_OF_FILES:
            msg = f"encoding={name[:40]!r} is not one that Python knows; use e.g. shift_jis"
            raise ValueError(msg)
        return found.name

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        of_csv, delimiter = self.format in ("csv", "auto"), self.delimiter
        if self.format == "delimited" and delimiter is None:
            yield "format='delimited' needs a delimiter, e.g. delimiter='<|endoftext|>'"
        is_single = delimiter is None or (
            len(delimiter) == 1 and delimiter.isascii() and delimiter not in '\r\n"'
        )
        if of_csv and not is_single:
            yield (
                f"delimiter={delimiter!r} of a csv must be one ASCII character; "
                "for longer delimiters between documents use format='delimited'"
            )
        unused = {
            "delimiter": delimiter is not None and not of_csv and self.format != "delimited",
            "encoding": self.encoding != UTF_8 and self.format in ("parquet", "arrow"),
            "id_column": self.id_column is not None and self.format not in (*WITH_COLUMNS, "auto"),
            "quoting": self.quoting != "auto" and not of_csv,
            "columns": self.columns and not of_csv,
        }
        for name in (name for name, is_unused in unused.items() if is_unused):
            yield f"{name}={getattr(self, name)!r} is not used by format={self.format!r}; remove it"
        missing = {self.text_column, self.id_column} - {None, *self.columns}
        if self.columns and missing:
            yield f"columns={[*self.columns]} must name {' and '.join(sorted(map(repr, missing)))}, too"


class SourceSpec(ReadOptions):
    """A source of a profile: its files, and how documents are read from them."""

    files: list[str] = Field(
        min_length=1,
        description=(
            "Paths or globs (** crosses folders), absolute, from ~, or relative to the profile's folder; or "
            "URLs of object storage, likewise (s3://bucket/web/**/*.jsonl.zst). {stdlib} is the standard "
            "library of the running Python, {samples} the texts that come with tokmill."
        ),
    )
    exclude: list[str] = Field(
        default=[],
        description=(
            "Globs of files or folders to leave out. One without a slash matches names at any depth "
            "(test, *.min.js); of files named by URL, the others are URLs, too."
        ),
    )

    hidden: Literal["skip", "include"] = Field(
        default="skip",
        description=(
            "Whether wildcards match what programs keep beside data: names with a leading dot; backups and "
            "unfinished files (*.bak *~ *.part *.tmp *.crc); Spark's _temporary; tables (.jsonl .parquet …), "
            ".txt and files without suffix with a leading _, or below such a folder; files that the log of a "
            "Delta table removes or lacks. skip: they do not, and a warning names them. include: they do."
        ),
    )

    def read_options(self) -> ReadOptions:
        """Return the part that is in the fingerprint."""
        return ReadOptions(**{name: getattr(self, name) for name in ReadOptions.model_fields})


def compression_of(name: str) -> str | None:
    """Return the compression by a file's last suffix, or None."""
    return COMPRESSIONS.get(splitext(name)[1].lower())


def is_compressed(name: str) -> bool:
    """Whether a file's name ends with the suffix of a compression."""
    return compression_of(name) is not None or inner_suffix(name) in (".parquet", ".pq")


def inner_suffix(name: str) -> str:
    """Return the suffix of the format, in lower case: `.jsonl` of `a.jsonl.gz`."""
    stem, suffix = splitext(name)
    return (splitext(stem)[1] if suffix.lower() in COMPRESSIONS else suffix).lower()


def format_by_name(name: str) -> Format:
    """Return the format by a file's suffix; see `tasks.formats.text.detection`."""
    return _BY_SUFFIX.get(inner_suffix(name), "text")


def is_of_table(name: str) -> bool:
    """Whether a file's suffix is that of a format with columns."""
    return inner_suffix(name) in _BY_SUFFIX


def nearest(word: str, known: list[str], limit: int = 8) -> list[str]:
    """Return at most `limit` names of `known`, those most similar to `word` first."""
    close = get_close_matches(word, known, n=limit, cutoff=0.4)
    return [*close, *(other for other in known if other not in close)][:limit]


def check_column(name: str, column: str | None, known: list[str], option: str) -> None:
    """Reject a file without a column, or with several columns of its name."""
    num_columns = 1 if column is None else known.count(column)
    if num_columns > 1:
        raise SourceError(
            f"{name}: {option}={column!r} names {num_columns} of its columns; rename all but one in the file"
        )
    if not num_columns:
        shown = ", ".join(nearest(column or "", known)) or "none"
        raise SourceError(
            f"{name}: {option}={column!r} is not among its columns ({shown}); set {option} to one of them"
        )
