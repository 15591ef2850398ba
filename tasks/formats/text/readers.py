"""Read a file's documents: one interface to all formats, and the laws that hold for all of them.

Every yielded document is valid UTF-8, and rows increase. Every fault in the file's content is a `BadDocument`
in its place. A damaged file gives the documents before the damage, and one bad document for the rest; of a
compressed one it says which of them can be trusted (`FileBatch.sound_bytes`). The result depends on the file
and the options alone, and files may be read in any thread.

Prose of a software installation: docstrings of Python files, and the whole of any other file.

A `.py` file's documents, in the order of the file, are the docstrings of its module, classes and functions,
without their indentation, and the texts with line breaks in its top-level dictionaries of strings (as in
`pydoc_data/topics.py`). A file gives the same documents under every Python version that can parse it.
"""

import ast
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tokmill.tasks.core.faults import call_parser
from tokmill.tasks.formats.text.columnar import BrokenFileError, read_arrow, read_parquet
from tokmill.tasks.formats.text.compression import BrokenArchiveError
from tokmill.tasks.formats.text.csv import read_csv
from tokmill.tasks.formats.text.delimited import Span, content, read_delimited, read_lines, read_text
from tokmill.tasks.formats.text.documents import (
    FileBatch,
    empty_file_batch,
    file_batch,
    without_invalid_utf8,
    without_long,
)
from tokmill.tasks.formats.text.json_array import read_json
from tokmill.tasks.formats.text.jsonl import read_jsonl
from tokmill.tasks.formats.text.quarantine import BadDocument, excerpt, too_long
from tokmill.tasks.formats.text.sources import UTF_8, Format, ReadOptions, inner_suffix
from tokmill.tasks.remote.location import Location
from tokmill.tokenizer.core.stopping import raise_if_stopped


def read_prose(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield a file's prose; a `.py` file that does not parse is one bad document."""
    if inner_suffix(path.name) != ".py":
        yield from read_text(path, span.whole_file, options)
        return
    limit = options.max_document_bytes
    source = _source(path, span, options)
    tree = too_long(0, source, limit) if len(source) > limit else _parsed(source)
    if isinstance(tree, BadDocument):
        yield file_batch([], np.empty(0, dtype=np.int64), bad=(tree,))
    else:
        yield _file_batch([text for _, _, text in sorted(_prose(tree), key=lambda found: found[:2])])


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

WHOLE = Span()


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
            inside = _inside(batch, span)
            inside = without_long(inside, options.max_document_bytes)
            checked = inside if file_format in _VALID else without_invalid_utf8(inside)
            if options.encoding != UTF_8:
                checked = replace(checked, bad=tuple(_in_encoding(bad, options) for bad in checked.bad))
            next_row = max(next_row, _last_row(checked) + 1)
            raise_if_stopped()
            del batch, inside
            yield checked
    except BrokenArchiveError as error:
        bad = BadDocument(next_row, error.reason, "", error.detail)
        yield replace(empty_file_batch([bad]), sound_bytes=error.sound_bytes)
    except BrokenFileError as error:
        yield empty_file_batch([BadDocument(next_row, "broken_file", "", str(error))])


def _in_encoding(bad: BadDocument, options: ReadOptions) -> BadDocument:
    if bad.reason != "invalid_utf8":
        return bad
    return replace(bad, reason="invalid_encoding", detail=f"not {options.encoding}")


def _inside(batch: FileBatch, span: Span) -> FileBatch:
    """Return the documents in the span, for formats that are read in larger units."""
    if span.num_rows is None:
        return batch
    first, last = np.searchsorted(batch.rows, (span.first_row, span.first_row + span.num_rows))
    return batch if last - first == len(batch) else batch.cut(int(first), int(last))


def _last_row(batch: FileBatch) -> int:
    rows = [one.row for one in batch.bad[-1:]] + batch.rows[-1:].tolist()
    return max(rows, default=-1)


# File name given to the parser; a filter silences the parser's warnings about this file.
_PARSED_NAME = "tokmill-prose"
_PARSING = threading.Lock()
# Fields that hold lists of statements, or of nodes with statements. A lambda's body is not a list.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _source(path: Location, span: Span, options: ReadOptions) -> bytes:
    """Return a file's bytes; reading stops once there are more than a document may have."""
    source = bytearray()
    for block, _ in content(path, span.whole_file, options.encoding):
        source += block
        if len(source) > options.max_document_bytes:
            break
    return bytes(source)


def _parsed(source: bytes) -> ast.Module | BadDocument:
    try:
        with _PARSING:
            _silence()
            return call_parser(lambda: ast.parse(source, filename=_PARSED_NAME), len(source))
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return BadDocument(0, "syntax_error", excerpt(source[:200]), f"{where}{error.msg}")
    except (ValueError, RecursionError) as error:
        return BadDocument(0, "syntax_error", excerpt(source[:200]), str(error) or type(error).__name__)


def _silence() -> None:
    """Ignore warnings about the parsed text, and no others.

    Saving and restoring all filters, as `warnings.catch_warnings` does, would affect other threads.
    """
    if not any(entry[3] is not None and entry[3].pattern == _PARSED_NAME for entry in warnings.filters[:1]):
        warnings.filterwarnings("ignore", module=_PARSED_NAME)


def _prose(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """Yield (line, column, text), in no particular order."""
    for node in _statements(tree):
        if isinstance(node, _Documented) and (text := ast.get_docstring(node, clean=False)):
            yield node.body[0].lineno, node.body[0].col_offset, without_indentation(text)
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Dict):
            yield from _values(statement.value)


def without_indentation(docstring: str) -> str:
    """Return a docstring as Python 3.13's `inspect.cleandoc` does: earlier versions strip more than spaces.

    Tabs become spaces. The first line loses its leading spaces, the others their common indentation (blank
    lines do not count). Empty lines at the beginning and the end are dropped.
    """
    first, *others = docstring.expandtabs().split("\n")
    margins = [len(line) - len(line.lstrip(" ")) for line in others if line.strip(" ")]
    margin = min(margins, default=0)
    return "\n".join([first.lstrip(" "), *(line[margin:] for line in others)]).strip("\n")


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the module and its statements; expressions, which are most of a tree, are skipped."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in _BLOCKS:
            if isinstance(inner := getattr(node, field, None), list):
                waiting += inner


def _values(table: ast.Dict) -> Iterator[tuple[int, int, str]]:
    constants = [value for value in table.values if isinstance(value, ast.Constant)]
    texts = [(at.lineno, at.col_offset, at.value) for at in constants if isinstance(at.value, str)]
    if len(texts) == len(table.values):
        yield from ((line, column, text) for line, column, text in texts if "\n" in text)


def _file_batch(texts: list[str]) -> FileBatch:
    kept: list[int] = []
    encoded: list[bytes] = []
    bad: list[BadDocument] = []
    for row, text in enumerate(texts):
        try:
            encoded.append(text.encode("utf-8"))
            kept.append(row)
        except UnicodeEncodeError as error:
            bad.append(
                BadDocument(
                    row, "invalid_utf8", excerpt(text), f"half a surrogate pair at character {error.start}"
                )
            )
    return file_batch(encoded, np.array(kept, dtype=np.int64), bad=tuple(bad))
