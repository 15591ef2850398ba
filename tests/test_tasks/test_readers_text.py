"""Whole files, lines and delimited documents: golden cases by hand, and Python itself as the oracle."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.test_tasks.reading import read
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.content import Span
from tokmill.tasks.formats.text.rows import Separator, row_blocks

LINES = {
    b"": [],
    b"a": [b"a"],
    b"a\n": [b"a"],
    b"a\nb": [b"a", b"b"],
    b"a\n\nb\n": [b"a", b"", b"b"],
    b"\n": [b""],
    b"\n\n": [b"", b""],
    b"a\r\nb\r\n": [b"a", b"b"],
    b"\r\n": [b""],
    b"a\rb\n": [b"a\rb"],  # a lone carriage return does not end a line
    b"a\r\r\n": [b"a\r"],
    b"a\r": [b"a\r"],  # nor does one at the end of the file
    b"a\x0bb\x85\xe2\x80\xa8": None,  # 0x85 alone is not UTF-8
    "a\u2028b\u0085c\n".encode(): ["a\u2028b\u0085c".encode()],  # Unicode's other line ends are text
    b"\xef\xbb\xbfa\nb\n": [b"a", b"b"],
    b"\xef\xbb\xbf": [],
    b"\xef\xbb\xbf\n": [b""],
    b"a\n\xef\xbb\xbfb\n": [b"a", b"\xef\xbb\xbfb"],  # a mark is only dropped at the start of the file
}


@pytest.mark.parametrize("content", LINES)
def test_lines(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)

    found = read(path, format="lines")

    if (expected := LINES[content]) is None:
        assert found.bad == [(0, "invalid_utf8")]
    else:
        assert found.documents == list(enumerate(expected))
        assert found.bad == []


@pytest.mark.parametrize(
    ("content", "delimiter", "expected"),
    [
        (b"one<|end|>two", "<|end|>", [b"one", b"two"]),
        (b"one<|end|>two<|end|>", "<|end|>", [b"one", b"two"]),
        (b"one<|end|>\ntwo<|end|>\n", "<|end|>", [b"one", b"\ntwo"]),
        (b"one\n<|end|>\n\ntwo\n<|end|>\r\n<|end|>\n", "<|end|>", [b"one\n", b"\ntwo\n", b""]),
        (b"one\r\n\r\ntwo\r\nthree\n\nfour\r\n\r\n", "\n\n", [b"one", b"two\r\nthree", b"four"]),
        (b"one\n\ntwo\n\n\n", "\n\n", [b"one", b"two", b"\n"]),
        (b"one\r\n---\r\ntwo\n---\n", "\n---\n", [b"one", b"two"]),
        (b"one\n---\ntwo\n---\n", "\n---", [b"one", b"two"]),
        (b"<|end|><|end|>x", "<|end|>", [b"", b"", b"x"]),
        (b"nothing in it", "<|end|>", [b"nothing in it"]),
        (b"", "<|end|>", []),
        (b"a\n\n\nb\n\nc", "\n\n", [b"a", b"\nb", b"c"]),  # from the left, without overlap
        ("a¶b¶".encode(), "¶", [b"a", b"b"]),
        ("aµb¶".encode(), "¶", ["aµb".encode()]),  # shares a byte with the delimiter
        (b"aaaaa", "aa", [b"", b"", b"a"]),
    ],
)
def test_delimited(tmp_path: Path, content: bytes, delimiter: str, expected: list[bytes]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)

    assert read(path, format="delimited", delimiter=delimiter).documents == list(enumerate(expected))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbfx\r\n", [(0, b"x\r\n")]),
        (b"\n", [(0, b"\n")]),
        (b"a\r\nb\0\n", [(0, b"a\r\nb\0\n")]),
    ],
)
def test_a_whole_file_is_one_document_byte_for_byte(
    tmp_path: Path, content: bytes, expected: list[tuple[int, bytes]]
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)

    assert read(path).documents == expected


@pytest.mark.parametrize(
    ("content", "options", "setting"),
    [
        (b"one\rtwo\r", {"format": "lines"}, "lines end with a carriage return alone; .*'text'"),
        (
            b"one\r\rtwo",
            {"format": "delimited", "delimiter": "\n\n"},
            "lines end with a carriage return alone",
        ),
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


def test_bad_lines_leave_their_row_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\xff\nfine\n\xed\xa0\x80\n\xc0\x80\nend")

    found = read(path, format="lines")

    assert found.documents == [(0, b"good"), (2, b"fine"), (5, b"end")]
    assert found.bad == [(1, "invalid_utf8"), (3, "invalid_utf8"), (4, "invalid_utf8")]


def test_a_span_begins_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfzero\none\r\ntwo\nthree")

    assert read(path, Span(1, 2, 8, 17), format="lines").documents == [(1, b"one"), (2, b"two")]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("scratch")


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
    st.lists(st.sampled_from([b"a", b"b", b"ab", b"", b"aab"]), max_size=12),
    st.sampled_from([b"a", b"ab", b"aa", b"aba", b"\n"]),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_records_do_not_depend_on_blocks(parts: list[bytes], separator: bytes, cuts: list[int]) -> None:
    content = separator.join(parts)
    expected = content.split(separator)
    expected = expected if expected[-1] else expected[:-1]  # a separator ends a record

    found, positions = [], []
    for group in row_blocks(_blocks(content, cuts), Separator(separator), len(content)):
        spans = zip(group.starts.tolist(), group.stops.tolist(), strict=True)
        found += [group.block[start:stop] for start, stop in spans]
        positions += group.bounds.tolist()

    assert found == expected
    # The records with their separators tile the content.
    assert [start for start, _ in positions] == [0, *(end for _, end in positions)][: len(positions)]
    assert all(
        content[a:b].removesuffix(separator) == text for (a, b), text in zip(positions, found, strict=True)
    )


@given(st.binary(max_size=60), st.sampled_from([b"\0", b"\0\0", b"\0\1\0"]))
def test_separators_are_where_find_finds_them(block: bytes, separator: bytes) -> None:
    expected, at = [], block.find(separator)
    while at >= 0:
        expected.append(at)
        at = block.find(separator, at + len(separator))

    assert np.array_equal(Separator(separator).spans(block)[0], expected)


@given(st.text(alphabet="ab \r\n\u00e9\u2028", max_size=60))
def test_lines_joined_again_are_the_file(scratch: Path, text: str) -> None:
    path = scratch / "a.txt"
    path.write_bytes(text.encode())
    assume("\n" in text or "\r" not in text.rstrip("\r"))
    lines = text.split("\n")
    ended, last = lines[:-1], lines[-1:]
    expected = [line.removesuffix("\r") for line in ended] + [line for line in last if line]

    assert read(path, format="lines").texts == [line.encode() for line in expected]


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
