"""Prose: docstrings and dictionaries of texts from Python files, and other files as a whole."""

import inspect
import sys
import sysconfig
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.reading import read
from tokmill.tasks.formats.text.prose import without_indentation

MODULE = '''
"""The module.

    More.
      Indented.
"""

topics = {
    "a": "First\\nline.",
    "b": "word",
    "c": """Second
text.""",
}
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


def test_documents_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(MODULE)

    assert [text.decode() for text in read(path, format="prose").texts] == [
        "The module.\n\nMore.\n  Indented.",
        "First\nline.",
        "Second\ntext.",
        "A thing.\n\nIndented as\nthe class is.",
        "Act.",
        "Inner.",
        "Wait.",
        "Late, with an \\d escape.",
        "In a handler.",
        "In a case.",
    ]


@pytest.mark.parametrize(
    ("docstring", "text"),
    [
        ("", ""),
        ("  One line.  ", "One line.  "),
        ("\n\n    Below.\n\n      More.\n    ", "Below.\n\n  More."),
        ("Tab:\n\tone\n\t\ttwo", "Tab:\none\n        two"),
        ("No-break space:\n    \u00a0one\n    two", "No-break space:\n\u00a0one\ntwo"),
        ("\u00a0First.\n  \n    Blank lines do not count.", "\u00a0First.\n\nBlank lines do not count."),
    ],
)
def test_indentation_by_hand(docstring: str, text: str) -> None:
    assert without_indentation(docstring) == text


@pytest.mark.skipif(sys.version_info < (3, 13), reason="earlier Pythons strip more than spaces")
@given(st.text(alphabet=" \n\ta\u00a0\x0c"))
def test_indentation_is_removed_as_python_does(docstring: str) -> None:
    assert without_indentation(docstring) == inspect.cleandoc(docstring)


@pytest.mark.parametrize(
    "source",
    [b"def broken(:\n", b"x = 1\0\n", b"# coding: nothing-of-that-name\n", b"(" * 5000, b"\xff = 1\n"],
    ids=["syntax", "null", "coding", "deep", "bytes"],
)
def test_a_file_that_does_not_parse_is_one_bad_document(tmp_path: Path, source: bytes) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(source)

    found = read(path, format="prose")

    assert found.documents == []
    assert found.bad == [(0, "syntax_error")]


def test_half_a_surrogate_pair_is_bad_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('"""Fine."""\ndef f():\n    "\\ud800"\ndef g():\n    "Good."\n')

    found = read(path, format="prose")

    assert found.documents == [(0, b"Fine."), (2, b"Good.")]
    assert found.bad == [(1, "invalid_utf8")]


def test_other_encodings_are_declared_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b'# -*- coding: latin-1 -*-\n"""Caf\xe9."""\n')

    assert read(path, format="prose").texts == ["Café.".encode()]


def test_warnings_about_the_text_are_silenced_and_other_filters_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('"""Odd \\d."""\nx = 1is 1\n')

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(path, format="prose")
        warnings.warn("still heard", stacklevel=1)

    assert [str(warning.message) for warning in caught] == ["still heard"]


@pytest.mark.parametrize("name", ["LICENSE", "a.txt", "a.md"])
def test_other_files_are_read_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"All of\r\nit.\n")

    assert read(path, format="prose").documents == [(0, b"All of\r\nit.\n")]


def test_the_topics_of_this_python() -> None:
    path = Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"
    if not path.exists():
        pytest.skip(f"this Python {sys.version} comes without pydoc_data")

    found = read(path, format="prose")

    assert len(found.texts) > 50
    assert any(b"lambda" in text for text in found.texts)
    assert found.bad == []
