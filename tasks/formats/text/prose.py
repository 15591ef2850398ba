"""Prose of a software installation: docstrings of Python files, and the whole of any other file.

A `.py` file's documents, in the order of the file, are the docstrings of its module, classes and functions,
without their indentation, and the texts with line breaks in its top-level dictionaries of strings (as in
`pydoc_data/topics.py`). A file gives the same documents under every Python version that can parse it.
"""

import ast
import threading
import warnings
from collections.abc import Iterator

import numpy as np

from tokmill.tasks.core.faults import call_parser
from tokmill.tasks.formats.text.content import Span
from tokmill.tasks.formats.text.documents import FileBatch, empty_file_batch, file_batch
from tokmill.tasks.formats.text.plain import beginning, read_text
from tokmill.tasks.formats.text.quarantine import BadDocument, excerpt, too_long
from tokmill.tasks.formats.text.sources import ReadOptions, inner_suffix
from tokmill.tasks.remote.location import Location

# File name given to the parser; a filter silences the parser's warnings about this file.
_PARSED_NAME = "tokmill-prose"
_PARSING = threading.Lock()
# Fields that hold lists of statements, or of nodes with statements. A lambda's body is not a list.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def read_prose(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield a file's prose; a `.py` file that does not parse is one bad document."""
    if inner_suffix(path.name) != ".py":
        yield from read_text(path, span.whole_file, options)
        return
    limit, source = options.max_document_bytes, bytes(beginning(path, span.whole_file, options)[0])
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
            _silence()
            return call_parser(lambda: ast.parse(source, filename=_PARSED_NAME), len(source))
    except SyntaxError as error:
        detail = f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    except (ValueError, RecursionError) as error:
        detail = str(error) or type(error).__name__
    return BadDocument(0, "syntax_error", excerpt(source[:200]), detail)


def _silence() -> None:
    """Ignore warnings about the parsed text, and no others.

    Saving and restoring all filters, as `warnings.catch_warnings` does, would affect other threads.
    """
    if not any(entry[3] is not None and entry[3].pattern == _PARSED_NAME for entry in warnings.filters[:1]):
        warnings.filterwarnings("ignore", module=_PARSED_NAME)


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
    """Return a docstring as Python 3.13's `inspect.cleandoc` does: earlier versions strip more than spaces.

    Tabs become spaces. The first line loses its leading spaces, the others their common indentation (blank
    lines do not count). Empty lines at the beginning and the end are dropped.
    """
    first, *others = docstring.expandtabs().split("\n")
    margins = [len(line) - len(line.lstrip(" ")) for line in others if line.strip(" ")]
    margin = min(margins, default=0)
    return "\n".join([first.lstrip(" "), *(line[margin:] for line in others)]).strip("\n")
