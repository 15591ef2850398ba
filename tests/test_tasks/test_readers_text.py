"""Whole files, lines, delimited documents and prose: golden cases by hand, and Python as the oracle."""

import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.reading import Read, read
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.content import Separator, row_blocks
from tokmill.tasks.formats.text.plain import without_indentation

LINES = {
    b"": [],
    b"a": [b"a"],
    b"a\n\nb\n": [b"a", b"", b"b"],
    b"\n\n": [b"", b""],
    b"a\r\nb\r\n": [b"a", b"b"],
    b"\r\n": [b""],
    b"a\rb\n": [b"a\rb"],  # a lone carriage return does not end a line
    b"a\r\r\n": [b"a\r"],
    b"a\r": [b"a\r"],  # nor does one at the end of the file
    "a\u2028b\u0085c\n".encode(): ["a\u2028b\u0085c".encode()],  # Unicode's other line ends are text
    b"\xef\xbb\xbfa\nb\n": [b"a", b"b"],
    b"\xef\xbb\xbf": [],
    b"\xef\xbb\xbf\n": [b""],
    b"a\n\xef\xbb\xbfb\n": [b"a", b"\xef\xbb\xbfb"],  # a mark is only dropped at the start of the file
}
DELIMITED = {
    "<|end|>": {
        b"": [],
        b"nothing in it": [b"nothing in it"],
        b"<|end|><|end|>x": [b"", b"", b"x"],
        b"one<|end|>two": [b"one", b"two"],
        b"one<|end|>\ntwo<|end|>\n": [b"one", b"\ntwo"],
        b"one\n<|end|>\n\ntwo\n<|end|>\r\n<|end|>\n": [b"one\n", b"\ntwo\n", b""],
    },
    "\n\n": {
        b"one\r\n\r\ntwo\r\nthree\n\nfour\r\n\r\n": [b"one", b"two\r\nthree", b"four"],
        b"one\n\ntwo\n\n\n": [b"one", b"two", b"\n"],
        b"a\n\n\nb\n\nc": [b"a", b"\nb", b"c"],  # from the left, without overlap
    },
    "\n---\n": {b"one\r\n---\r\ntwo\n---\n": [b"one", b"two"]},
    "\n---": {b"one\n---\ntwo\n---\n": [b"one", b"two"]},
    "¶": {
        "a¶b¶".encode(): [b"a", b"b"],
        "aµb¶".encode(): ["aµb".encode()],  # shares a byte with the delimiter
    },
    "aa": {b"aaaaa": [b"", b"", b"a"]},
}


@pytest.mark.parametrize(
    ("content", "expected", "options"),
    [
        *((content, expected, {"format": "lines"}) for content, expected in LINES.items()),
        *(
            (content, expected, {"format": "delimited", "delimiter": delimiter})
            for delimiter, cases in DELIMITED.items()
            for content, expected in cases.items()
        ),
    ],
)
def test_lines_and_delimited_documents_by_hand(
    tmp_path: Path, content: bytes, expected: list[bytes], options: dict[str, str]
) -> None:
    (tmp_path / "a.txt").write_bytes(content)

    assert read(tmp_path / "a.txt", **options) == Read([*enumerate(expected)], [], [])


@pytest.mark.parametrize(
    ("content", "options", "setting"),
    [
        (b"one\rtwo\r", {"format": "lines"}, "lines end with a carriage return alone; .*'text'"),
        (b"one\r\rtwo", {"format": "delimited", "delimiter": "\n\n"}, "lines end with a carriage return"),
        ("one".encode("utf-16-le"), {}, "set encoding = 'utf-16-le'"),
        ("one two".encode("utf-16-be"), {"format": "lines"}, "set encoding = 'utf-16-be'"),
        ("one".encode("utf-16"), {}, "set encoding = 'utf-16'"),
        ("one".encode("utf-32"), {}, "set encoding = 'utf-32'"),
        ("one, Größe".encode("utf-32-le"), {}, "set encoding = 'utf-32-le'"),
        ("いろはに".encode("utf-32-be"), {}, "set encoding = 'utf-32-be'"),
        (b"one", {"encoding": "utf-16"}, "cannot be read as utf-16: .*; set its encoding, e.g. 'utf-16-le'"),
    ],
)
def test_text_that_would_be_read_wrongly_is_refused(
    tmp_path: Path, content: bytes, options: dict[str, str], setting: str
) -> None:
    (tmp_path / "a.txt").write_bytes(content)

    with pytest.raises(SourceError, match=rf"a\.txt: .*{setting}"):
        read(tmp_path / "a.txt", **options)


def _blocks(content: bytes, cuts: list[int]) -> Iterator[tuple[bytes, int]]:
    bounds = [0, *sorted({cut % len(content) for cut in cuts} - {0} if content else ()), len(content)]
    yield from ((content[a:b], a) for a, b in pairwise(bounds) if b > a)


@given(
    st.lists(st.sampled_from([b"a", b"b", b"ab", b"", b"aab"]), max_size=12),
    st.sampled_from([b"a", b"ab", b"aa", b"aba", b"\n"]),
    st.lists(st.integers(0, 60), max_size=8),
    st.integers(0, 6),
)
def test_records_of_any_length_under_any_limit(
    parts: list[bytes], separator: bytes, cuts: list[int], limit: int
) -> None:
    """Records within the limit come back unchanged at their positions; longer ones are cut beyond it."""
    content = separator.join(parts)
    expected = content.split(separator)
    expected = expected if expected[-1] else expected[:-1]

    position = 0
    found = []
    for group in row_blocks(_blocks(content, cuts), Separator(separator), limit):
        for start, stop, bounds in zip(group.starts, group.stops, group.bounds.tolist(), strict=True):
            found.append(bytes(group.block[start:stop]))
            if stop - start <= limit:
                assert content[bounds[0] : bounds[1]].removesuffix(separator) == found[-1]
                assert bounds[0] >= position
                position = bounds[1]

    assert [text if len(text) <= limit else None for text in found] == [
        text if len(text) <= limit else None for text in expected
    ]
    assert all(text.startswith(part) for text, part in zip(expected, found, strict=True))


@given(
    st.lists(st.sampled_from(["a", "b\r\nc", "d\ne", "f\r"]), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_a_line_end_in_a_delimiter_is_either_of_the_two(
    texts: list[str], returns: list[bool], cuts: list[int]
) -> None:
    ends = ["\r\n--\r\n" if is_return else "\n--\n" for is_return in returns]
    content = "".join(text + end for text, end in zip(texts, ends, strict=False)).encode()
    separator = Separator(b"\n--\n", any_line_end=True)

    groups = row_blocks(_blocks(content, cuts), separator, len(content))
    found = [
        bytes(group.block[a:b]) for group in groups for a, b in zip(group.starts, group.stops, strict=True)
    ]

    expected = re.split(r"\r?\n--\r?\n", content.decode())[:-1]
    assert found == [text.encode() for text in expected]


MODULE = '''
"""The module.

    More.
      Indented.
"""
topics = {"a": "First\\nline.", "b": "word", "c": """Second
text."""}
numbers = {"a": 1, "b": "two\\nlines"}
names = {"a": "b"}
class Thing:
    """A thing.

    Indented as
    the class is.
    """
    def act(self):
        """Act."""
        def inner():
            "Inner."
    async def wait(self):
        """Wait."""
if True:
    try:
        def late():
            """Late, with an \\d escape."""
    except ValueError:
        def handler():
            """In a handler."""
    match 1:
        case 1:
            def cased():
                """In a case."""
def none():
    x = """Not a docstring."""
    """Nor this."""
def empty():
    """"""
'''
PROSE = ["The module.\n\nMore.\n  Indented.", "First\nline.", "Second\ntext."]
PROSE += ["A thing.\n\nIndented as\nthe class is.", "Act.", "Inner.", "Wait.", "Late, with an \\d escape."]
PROSE += ["In a handler.", "In a case."]


BAD = [(0, "syntax_error")]


@pytest.mark.parametrize(
    ("name", "source", "texts", "bad"),
    [
        ("a.py", MODULE.encode(), dict(enumerate(map(str.encode, PROSE))), []),
        ("a.py", b'# -*- coding: latin-1 -*-\n"""Caf\xe9."""\n', {0: "Café.".encode()}, []),
        (
            *("a.py", b'"""Fine."""\ndef f():\n    "\\ud800"\ndef g():\n    "Good."\n'),
            *({0: b"Fine.", 2: b"Good."}, [(1, "invalid_utf8")]),
        ),
        *(("a.py", source, {}, BAD) for source in (b"def broken(:\n", b"x = 1\0\n", b"\xff = 1\n")),
        ("a.py", b"# coding: nothing-of-that-name\n", {}, BAD),
        *(("a.py", source, {}, BAD) for source in (b"(" * 5000, b"x = " + b"-" * 100_000 + b"1\n")),
        *((name, b"All of\r\nit.\n", {0: b"All of\r\nit.\n"}, []) for name in ("LICENSE", "a.md")),
    ],
    ids=range(11),
)
def test_prose_by_hand(
    tmp_path: Path, name: str, source: bytes, texts: dict[int, bytes], bad: list[tuple[int, str]]
) -> None:
    (tmp_path / name).write_bytes(source)

    found = read(tmp_path / name, format="prose")

    assert (dict(found.documents), found.bad) == (texts, bad)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="earlier Pythons strip more than spaces")
@given(st.text(alphabet=" \n\ta\u00a0\x0c"))
def test_indentation_is_removed_as_python_does(docstring: str) -> None:
    assert without_indentation(docstring) == inspect.cleandoc(docstring)


def test_warnings_about_the_text_are_silenced_and_other_filters_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('"""Odd \\d."""\nx = 1is 1\n')

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(path, format="prose")
        warnings.warn("still heard", stacklevel=1)

    assert [str(warning.message) for warning in caught] == ["still heard"]
