r"""Plain text: a file that is one document, documents on lines, or between delimiters; and prose.

Bytes are not changed: newlines are not translated and white space is not trimmed. A line's document is the
line without its ending, `\n` or `\r\n`; a `\r` alone does not end a line, and a file with no other line ends
is refused. An empty line is a document of 0 bytes, and so is the text between two adjacent delimiters. An
empty file, or one with nothing but a byte order mark, has no documents. A line end in a delimiter is either
of the two. A delimiter on a line of its own takes that line's end with it, and a line end alone after the
last delimiter is not a document.

Prose of a software installation: a `.py` file's documents, in the order of the file, are the docstrings of
its module, classes and functions, without their indentation, and the texts with line breaks in its top-level
dictionaries of strings (as in `pydoc_data/topics.py`); any other file is one document. A file gives the same
documents under every Python version that can parse it.
"""

import ast
import threading
import warnings
from collections.abc import Iterator

import numpy as np

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import call_parser
from tokmill.tasks.formats.text.content import NEWLINE, RowBlock, Separator, Span, content, row_blocks
from tokmill.tasks.formats.text.documents import FileBatch, Ints, empty_file_batch, file_batch, offsets_of
from tokmill.tasks.formats.text.quarantine import BadDocument, excerpt, too_long
from tokmill.tasks.formats.text.sources import ReadOptions, inner_suffix
from tokmill.tasks.remote.location import Location

_CARRIAGE_RETURN, _NEWLINE = b"\r\n"
# File name given to the parser; a filter silences the parser's warnings about this file.
_PARSED_NAME = "tokmill-prose"
_PARSING = threading.Lock()
# Fields that hold lists of statements, or of nodes with statements. A lambda's body is not a list.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def read_text(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the whole file as one document; of a file that is too long, only a part is read."""
    text, start = _beginning(path, span, options)
    if text:
        bounds = np.array([[start, start + len(text)]], dtype=np.int64)
        yield _batch(text, np.array([len(text)]), 0, bounds)


def _beginning(path: Location, span: Span, options: ReadOptions) -> tuple[bytearray, int]:
    """Return a file's content, at least as much as shows that it is too long, and the position of it."""
    text, start = bytearray(), 0
    for block, position in content(path, span, options.encoding):
        start = start if text else position
        text += block
        if len(text) > options.max_document_bytes:
            break
    return text, start


def read_lines(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield each line as a document."""
    row = span.first_row
    for lines in row_blocks(content(path, span, options.encoding), NEWLINE, options.max_document_bytes):
        if row == 0:
            _refuse_returns(path, lines)
        buffer = np.frombuffer(lines.block, dtype=np.uint8)
        # A last line without newline keeps a carriage return: only "\r\n" is a line ending.
        ended = (lines.stops > lines.starts) & (lines.ends > lines.stops)
        returns = ended & (buffer[lines.stops - 1] == _CARRIAGE_RETURN)
        block = lines.block.replace(b"\r\n", b"\n") if returns.any() else lines.block
        yield _batch(block.replace(b"\n", b""), lines.stops - lines.starts - returns, row, lines.bounds)
        row += len(lines.stops)


def read_delimited(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the texts between delimiters; a delimiter at the end does not begin another document."""
    delimiter = (options.delimiter or "").encode("utf-8")
    separator = Separator(delimiter, any_line_end=True)
    row, is_own_line = span.first_row, False
    for rows in row_blocks(content(path, span, options.encoding), separator, options.max_document_bytes):
        if row == 0 and b"\n" in delimiter:
            _refuse_returns(path, rows)
        inside, is_own_line = _without_line_ends(rows, delimiter, is_own_line=is_own_line, first_row=row)
        lengths = inside.stops - inside.starts
        if int(lengths.sum()) + len(delimiter) * len(lengths) == len(rows.block):
            text = rows.block.replace(delimiter, b"")
        else:
            bounds = zip(inside.starts.tolist(), inside.stops.tolist(), strict=True)
            text = bytearray().join(rows.block[start:stop] for start, stop in bounds)
        yield _batch(text, lengths, row, inside.bounds)
        row += len(lengths)


def _without_line_ends(
    rows: RowBlock, delimiter: bytes, *, is_own_line: bool, first_row: int
) -> tuple[RowBlock, bool]:
    """Return rows without the ends of lines of delimiters alone, and whether such a line follows them."""
    if delimiter.endswith(b"\n"):
        return rows, False
    starts, stops, ends = rows.starts, rows.stops, rows.ends
    padded = np.append(np.frombuffer(rows.block, dtype=np.uint8), np.zeros(2, dtype=np.uint8))
    own = (ends > stops) & ((stops == starts) | (padded[stops - 1] == _NEWLINE) | delimiter.startswith(b"\n"))
    follows = np.append(is_own_line, own[:-1])
    returns = (padded[starts] == _CARRIAGE_RETURN) & (padded[starts + 1] == _NEWLINE)
    skipped = np.where(follows & (padded[starts] == _NEWLINE), 1, np.where(follows & returns, 2, 0))
    starts = np.minimum(starts + skipped, stops)
    is_rest = first_row + len(starts) > 1 and ends[-1] == stops[-1]
    kept = len(starts) - (is_rest and bytes(rows.block[starts[-1] : stops[-1]]) in (b"", b"\n", b"\r\n"))
    return RowBlock(rows.block, starts[:kept], stops[:kept], ends[:kept], rows.position), bool(own[-1])


def _refuse_returns(path: Location, rows: RowBlock) -> None:
    r"""Reject a file whose lines end with `\r`: these rows, which begin it, have no other line ends."""
    if b"\n" not in rows.block and b"\r" in rows.block.rstrip(b"\r"):
        raise SourceError(
            f"{path}: its lines end with a carriage return alone; replace each by a newline, or set format = "
            "'text' to read it as one document"
        )


def _batch(text: bytearray, lengths: Ints, row: int, bounds: Ints) -> FileBatch:
    rows = np.arange(row, row + len(lengths))
    return FileBatch(np.frombuffer(text, dtype=np.uint8), offsets_of(lengths), rows, bounds)


def read_prose(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield a file's prose; a `.py` file that does not parse is one bad document."""
    if inner_suffix(path.name) != ".py":
        yield from read_text(path, span.whole_file, options)
        return
    limit, source = options.max_document_bytes, bytes(_beginning(path, span.whole_file, options)[0])
    tree = too_long(0, source, limit) if len(source) > limit else _parsed(source)
    if isinstance(tree, BadDocument):
        yield empty_file_batch([tree])
        return
    bad: list[BadDocument] = []
    texts: dict[int, bytes] = {}
    for row, (_, _, text) in enumerate(sorted(_prose(tree), key=lambda found: found[:2])):
        try:
            texts[row] = text.encode("utf-8")
        except UnicodeEncodeError as error:
            detail = f"half a surrogate pair at character {error.start}"
            bad.append(BadDocument(row, "invalid_utf8", excerpt(text), detail))
    yield file_batch([*texts.values()], np.array([*texts], dtype=np.int64), bad=tuple(bad))


def _parsed(source: bytes) -> ast.Module | BadDocument:
    try:
        with _PARSING:
            # Saving and restoring all filters, as `warnings.catch_warnings` does, would affect other threads.
            patterns = [entry[3] for entry in warnings.filters[:1]]
            if not any(pattern is not None and pattern.pattern == _PARSED_NAME for pattern in patterns):
                warnings.filterwarnings("ignore", module=_PARSED_NAME)
            return call_parser(lambda: ast.parse(source, filename=_PARSED_NAME), len(source))
    except SyntaxError as error:
        detail = f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    except (ValueError, RecursionError) as error:
        detail = str(error) or type(error).__name__
    return BadDocument(0, "syntax_error", excerpt(source[:200]), detail)


def _prose(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """Yield (line, column, text), in no particular order."""
    waiting: list[ast.AST] = [tree]
    while waiting:  # statements alone; expressions are most of a tree
        node = waiting.pop()
        if isinstance(node, _Documented) and (text := ast.get_docstring(node, clean=False)):
            yield node.body[0].lineno, node.body[0].col_offset, without_indentation(text)
        for field in _BLOCKS:
            if isinstance(inner := getattr(node, field, None), list):
                waiting += inner
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Dict):
            values = statement.value.values
            constants = [value for value in values if isinstance(value, ast.Constant)]
            texts = [(at.lineno, at.col_offset, at.value) for at in constants if isinstance(at.value, str)]
            if len(texts) == len(values):
                yield from (found for found in texts if "\n" in found[2])


def without_indentation(docstring: str) -> str:
    """Return a docstring as Python 3.13's `inspect.cleandoc` does: earlier ones strip more than spaces."""
    first, *others = docstring.expandtabs().split("\n")
    margins = [len(line) - len(line.lstrip(" ")) for line in others if line.strip(" ")]
    margin = min(margins, default=0)
    return "\n".join([first.lstrip(" "), *(line[margin:] for line in others)]).strip("\n")
