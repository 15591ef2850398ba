"""JSON lines: what a document is, and every way in which a line can be bad."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.test_tasks.reading import read
from tokmill.tasks.formats.text.json import _as_id as as_id

BAD_LINES = {
    b'{"text": "a"': "broken_json",
    b"nonsense": "broken_json",
    b'{"text": "a", "n": 01}': "broken_json",
    b'{"text": "a", "n": nan}': "broken_json",
    b'{"text": "a"} {"text": "b"}': "broken_json",
    b"[1, 2]": "not_an_object",
    b'"text"': "not_an_object",
    b"null": "not_an_object",
    b"7": "not_an_object",
    b"{}": "missing_column",
    b'{"Text": "a"}': "missing_column",
    b'{"text": null}': "null_text",
    b'{"text": 7}': "not_text",
    b'{"text": NaN}': "not_text",
    b'{"text": true}': "not_text",
    b'{"text": ["a"]}': "not_text",
    b'{"text": {"text": "a"}}': "not_text",
    b'{"text": "\xff"}': "invalid_utf8",
    b'{"text": "\\ud800"}': "invalid_utf8",
    b'{"n": 1e999, "text": "\\ud800"}': "invalid_utf8",
    b'{"n": 1e999, "\\ud800": "b"}': "missing_column",
    b'{"text": "a\\udc00b"}': "invalid_utf8",
    b'{"text": "\xed\xa0\x80"}': "invalid_utf8",
}


def test_documents_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "caf\\u00e9", "id": "x"}\r\n'
        b'  {"id": 7, "text": ""}  \n'
        b"\n"
        b" \t\r\n"
        b'{"text": "\\ud83d\\ude00\\n", "other": [1]}\n'
        b'{"text": "first", "text": "last", "id": null}'
    )

    found = read(path, id_column="id")

    assert found.documents == [
        (0, "café".encode()),
        (1, b""),
        (4, "😀\n".encode()),
        (5, b"last"),
    ]
    assert found.ids == ["x", "7", None, None]
    assert found.bad == []


# Values that RFC 8259 or UTF-8 do not allow, or that no number type holds.
UNREAD = [b"1e999", b"-1e999", b"NaN", b"Infinity", b"-Infinity", b"9" * 400, b"9" * 5000]
UNREAD += [b'"\\ud800"', b'"\xff"']


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_member_that_nobody_reads_loses_no_document(tmp_path: Path, suffix: str) -> None:
    lines = [b'{"text": "fine", "score": %s, "\\ud800": [%s]}' % (value, value) for value in UNREAD]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"\n".join(lines) if suffix == ".jsonl" else b"[" + b",\n".join(lines) + b"]")

    found = read(path, id_column="score")

    assert found.texts == [b"fine"] * len(UNREAD)
    assert found.bad == []
    assert found.ids == [*(value.decode() for value in UNREAD[:7]), "\\ud800", "\\udcff"]


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_reported_and_the_others_are_kept(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')

    found = read(path)

    assert found.documents == [(0, b"before"), (2, b"after")]
    assert found.bad == [(1, BAD_LINES[line])]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("scratch")


def as_json_reads(content: bytes) -> tuple[list[tuple[int, bytes]], list[str | None], list[int]]:
    """Documents, ids and the rows of bad lines, one line at a time."""
    documents: list[tuple[int, bytes]] = []
    ids: list[str | None] = []
    bad: list[int] = []
    for row, line in enumerate(content.split(b"\n")):
        try:
            value = json.loads(line.decode("utf-8", "surrogateescape"))
            documents.append((row, value["text"].encode()))
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            bad += [row] * bool(line.strip(b" \t\r"))
            continue
        with suppress(orjson.JSONDecodeError):  # numbers are written as orjson reads them
            value = orjson.loads(line)
        ids.append(as_id(value.get("id")))
    return documents, ids, bad


STRINGS = st.text(
    st.sampled_from('ab"\\/\b\f\n\r\t\0\x1f\x7f\u00e9\u2028\u732b\ufeff\U0001f600'), max_size=20
)
NUMBERS = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**40), 10**40)
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, STRINGS)
VALUES = st.recursive(
    SCALARS, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(STRINGS, inside, max_size=3)
)
MEMBERS = st.tuples(st.sampled_from(["text", "text", "id", "tex", "texts", "", "te\\xt"]), VALUES)


@st.composite
def json_objects(draw: Any) -> bytes:
    """JSON objects with keys in any order, also repeated, and white space and escapes anywhere."""
    members = draw(st.lists(MEMBERS, max_size=3)) + [("text", draw(STRINGS))] * draw(st.integers(0, 2))
    spaces = st.sampled_from(["", " ", "\t\r "])
    escaped = draw(st.booleans())

    def written(value: Any) -> str:
        return draw(spaces) + json.dumps(value, ensure_ascii=escaped) + draw(spaces)

    inside = ",".join(written(key) + ":" + written(value) for key, value in draw(st.permutations(members)))
    return (draw(spaces) + "{" + inside + "}" + draw(spaces)).encode()


@st.composite
def damaged(draw: Any, lines: st.SearchStrategy[bytes]) -> bytes:
    """Lines, some of them with a byte changed, removed or inserted."""
    line = bytearray(draw(lines))
    if line and draw(st.booleans()):
        place = draw(st.integers(0, len(line) - 1))
        byte = draw(st.sampled_from(b'{}[],:"\\ue019-+.tfn \t\r\n\0\x80\xc3\xff'))
        line[place : place + draw(st.integers(0, 1))] = bytes([byte]) * draw(st.integers(0, 1))
    return bytes(line)


@given(st.lists(damaged(json_objects()), max_size=4))
@example(
    [b'{"text": "a", "n": ' + number + b"}" for number in (b"-", b"01", b"1.", b".5", b"1e", b"1e+", b"+1")]
)
@example([b'{"text": "a", "n": ' + number + b"}" for number in (b"-0", b"0e0", b"1E-5", b"1e400", b"9" * 30)])
@example([b'{"text": "a", "n": ' + b"[" * depth + b"]" * depth + b"}" for depth in (63, 64, 65, 2_000)])
@example(
    [
        b'{"text": "' + escape + b'"}'
        for escape in (b"\\x", b"\\", b"\\u12", b"\\uD83D\\uDE00", b"\\uD83D\\uD83D")
    ]
)
@example(
    [
        b'{"text": "a", "n": tru}',
        b'{"text": "a", "n": truee}',
        b'{"text": "a",}',
        b'{,"text": "a"}',
        b'{"text" "a"}',
    ]
)
@example(
    [b'{"text": "a"', b'{"text": "a', b'{"text":', b'{"text"', b"{", b'{"text": "a"}}', b'{"text": "a"} x']
)
@example(
    [
        b'{"te\\u0078t": "a", "\\u0069d": "\\u0069d"}',
        b'{"id": {"a": [1]}, "text": ""}',
        b'{"text": "", "id": "\\n"}',
    ]
)
@example([b'{"text":""}'] * 3 + [b'{"text":""'])
def test_any_line_is_read_as_a_full_parser_reads_it(scratch: Path, lines: list[bytes]) -> None:
    path = scratch / "a.jsonl"
    content = b"\n".join(lines)
    path.write_bytes(content)

    found = read(path, id_column="id")

    documents, ids, bad = as_json_reads(content)
    assert found.documents == documents
    assert found.ids == ids
    assert [row for row, _ in found.bad] == bad


def test_ids_of_more_than_64_bits_keep_their_digits(tmp_path: Path) -> None:
    numbers = ["18446744073709551617", "18446744073709551618", "-9" + "0" * 30]
    objects = [f'{{"text": "a", "id": {number}}}' for number in numbers]
    odd = [f'{{"text": "\\u0061", "id": {number}}}' for number in numbers]
    (tmp_path / "a.jsonl").write_text("\n".join(objects + odd))
    (tmp_path / "a.json").write_text(f"[{','.join(objects)}]")

    assert read(tmp_path / "a.jsonl", id_column="id").ids == numbers * 2
    assert read(tmp_path / "a.json", id_column="id").ids == numbers


def test_lines_of_any_length_come_back(tmp_path: Path) -> None:
    # Some go through several of the blocks that a file is read in, some blocks hold many.
    path = tmp_path / "a.jsonl"
    texts = ["x" * 10, "\u732b\n" * 700_000, "", '"' * 600_000, *["short"] * 60_000, "y" * 3_000_000, "end"]
    path.write_bytes(b"\n".join(orjson.dumps({"text": text}) for text in texts))

    found = read(path)

    assert found.texts == [text.encode() for text in texts]
    assert [row for row, _ in found.documents] == list(range(len(texts)))
