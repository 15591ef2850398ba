"""Read a file's documents: one interface to all formats, and the laws that hold for all of them.

Every yielded document is valid UTF-8, and rows increase. Every fault in the file's content is a `BadDocument`
in its place. A damaged file gives the documents before the damage, and one bad document for the rest; of a
compressed one it says which of them can be trusted (`FileBatch.sound_bytes`). The result depends on the file
and the options alone, and files may be read in any thread.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tokmill.tasks.formats.text.columnar import read_arrow, read_parquet
from tokmill.tasks.formats.text.content import WHOLE, Span
from tokmill.tasks.formats.text.csv import read_csv
from tokmill.tasks.formats.text.documents import (
    FileBatch,
    empty_file_batch,
    without_invalid_utf8,
    without_long,
)
from tokmill.tasks.formats.text.json import read_json, read_jsonl
from tokmill.tasks.formats.text.plain import read_delimited, read_lines, read_prose, read_text
from tokmill.tasks.formats.text.quarantine import BadDocument, BrokenFileError
from tokmill.tasks.formats.text.sources import UTF_8, Format, ReadOptions
from tokmill.tasks.remote.location import Location
from tokmill.tokenizer.core.stopping import raise_if_stopped

_READERS: dict[Format, Callable[[Location, Span, ReadOptions], Iterator[FileBatch]]] = {
    "text": read_text,
    "lines": read_lines,
    "delimited": read_delimited,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "csv": read_csv,
    "json": read_json,
    "prose": read_prose,
}
# The readers of these formats check the encoding themselves.
_VALID = ("jsonl", "json")


def read_file_batches(
    path: Location, file_format: Format, options: ReadOptions, span: Span = WHOLE
) -> Iterator[FileBatch]:
    """Yield the documents of a file, or of a span of it.

    Raises:
        SourceError: the file cannot be read, or lacks the text column.
    """
    next_row = span.first_row
    try:
        for batch in _READERS[file_format](path, span, options):
            inside = without_long(_inside(batch, span), options.max_document_bytes)
            checked = inside if file_format in _VALID else without_invalid_utf8(inside)
            if options.encoding != UTF_8:
                checked = replace(checked, bad=tuple(_in_encoding(bad, options) for bad in checked.bad))
            last_rows = [bad.row for bad in checked.bad[-1:]] + checked.rows[-1:].tolist()
            next_row = max([next_row, *(row + 1 for row in last_rows)])
            raise_if_stopped()
            del batch, inside
            yield checked
    except BrokenFileError as error:
        bad = BadDocument(next_row, error.reason, error.excerpt, error.detail)
        yield replace(empty_file_batch([bad]), sound_bytes=error.sound_bytes)


def _in_encoding(bad: BadDocument, options: ReadOptions) -> BadDocument:
    if bad.reason != "invalid_utf8":
        return bad
    return replace(bad, reason="invalid_encoding", detail=f"not {options.encoding}")


def _inside(batch: FileBatch, span: Span) -> FileBatch:
    """Return the documents in the span, for formats that are read in larger units."""
    if span.num_rows is None:
        return batch
    first, last = np.searchsorted(batch.rows, (span.first_row, span.first_row + span.num_rows))
    return batch if last - first == len(batch) else replace(batch.cut(int(first), int(last)), bad=())
