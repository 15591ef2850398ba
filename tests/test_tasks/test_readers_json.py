"""JSON lines, arrays and objects: what a document is, and every way in which one can be bad."""

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
    "broken_json": b"""{"text": "a"|nonsense|{"text": "a", "n": 01}|{"a": nan}|{"text": ""} {}""",
    "not_an_object": b"""[1, 2]|"text"|null|7""",
    "missing_column": b"""{}|{"Text": "a"}|{"n": 1e999, "\\ud800": "b"}""",
    "null_text": b"""{"text": null}""",
    "not_text": b"""{"text": 7}|{"text": NaN}|{"text": true}|{"text": ["a"]}|{"text": {"text": "a"}}""",
    "invalid_utf8": b"""{"text": "\xff"}|{"text": "\\ud800"}|{"n": 1e999, "text": "\\ud800"}"""
    b"""|{"text": "a\\udc00b"}|{"text": "\xed\xa0\x80"}""",
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

    texts = ["café", "", "😀\n", "last"]
    assert found.documents == list(zip((0, 1, 4, 5), (text.encode() for text in texts), strict=True))
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

    assert (found.texts, found.bad) == ([b"fine"] * len(UNREAD), [])
    assert found.ids == [*(value.decode() for value in UNREAD[:7]), "\\ud800", "\\udcff"]


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_bad_line_is_reported_and_the_others_are_kept(tmp_path: Path, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    for line in BAD_LINES[reason].split(b"|"):
        path.write_bytes(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')

        found = read(path)

        assert (found.documents, found.bad) == ([(0, b"before"), (2, b"after")], [(1, reason)])


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
        own = value.get("id")
        if type(own) is int and abs(own) >= 1 << 63:
            ids.append(str(own))
            continue
        with suppress(orjson.JSONDecodeError):  # other numbers are written as orjson reads them
            value = orjson.loads(line)
        ids.append(as_id(value.get("id")))
    return documents, ids, bad


STRINGS = st.text(
    st.sampled_from('ab"\\/\b\f\n\r\t\0\x1f\x7f\u00e9\u2028\u732b\ufeff\U0001f600'), max_size=20
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), FLOATS, st.integers(-(10**40), 10**40), STRINGS)
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


NUMBERS = [b"-", b"01", b"1.", b".5", b"1e", b"1e+", b"+1", b"-0", b"0e0", b"1E-5", b"1e400", b"9" * 30]
ESCAPES = [b"\\x", b"\\", b"\\u12", b"\\uD83D\\uDE00", b"\\uD83D\\uD83D"]
UNFINISHED = [
    b'{"text": "a"',
    b'{"text": "a',
    b'{"text":',
    b'{"text"',
    b"{",
    b'{"text": "a"}}',
    b'{"text":""',
]
ODD = [b'{"te\\u0078t": "a", "\\u0069d": "\\u0069d"}', b'{"id": {"a": [1]}, "text": ""}', b'{"text": "a"} x']
ODD += [b'{"text": "", "id": "\\n"}', b'{"text": "a",}', b'{,"text": "a"}', b'{"text" "a"}']


@given(st.lists(damaged(json_objects()), max_size=4))
@example([b'{"text": "a", "n": %s}' % value for value in (*NUMBERS, b"tru", b"truee")])
@example([b'{"text": "a", "n": ' + b"[" * depth + b"]" * depth + b"}" for depth in (63, 64, 65, 2_000)])
@example([b'{"text": "%s"}' % escape for escape in ESCAPES])
@example(UNFINISHED)
@example(ODD)
@example([b'{"text": "a", "id": %s}' % (b"[" * 500 + b"]" * 500), b'{"text": "b", "x":' + b"[" * 200_000])
@example([b'{"text":""}'] * 3 + [b'{"text":""'])
@example([b"{\n}", b"{}"])
@example([b'{"id": %d, "text": ""}' % number for number in (-(1 << 63) - 1, 1 << 63, 1 << 64)])
def test_any_line_is_read_as_a_full_parser_reads_it(scratch: Path, lines: list[bytes]) -> None:
    # an object that spans the first lines would be JSON in another layout
    first = [b'{"text": ""}'] if any(b"\n" in line for line in lines) else []
    path, content = scratch / "a.jsonl", b"\n".join(first + lines)
    path.write_bytes(content)

    found = read(path, id_column="id")

    documents, ids, bad = as_json_reads(content)
    assert (found.documents, found.ids) == (documents, ids)
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

    assert read(path).documents == list(enumerate(text.encode() for text in texts))


ELEMENTS = st.lists(st.dictionaries(st.sampled_from(["text", "id", "x"]), VALUES) | VALUES, max_size=6)


@given(ELEMENTS, st.sampled_from([None, 1]))
def test_an_array_is_read_as_the_lines_of_its_elements(
    scratch: Path, values: list[Any], indent: int | None
) -> None:
    values = [{}, *values]  # the first is not a list: the lines are lines
    (scratch / "b.json").write_text(json.dumps(values, indent=indent))
    (scratch / "b.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))

    assert read(scratch / "b.json", id_column="id") == read(scratch / "b.jsonl", id_column="id")


@pytest.mark.parametrize(
    ("text", "documents", "bad"),
    [
        ("", [], []),
        ("[]", [], []),
        (" [ ] ", [], []),
        ('[{"text":"a"},]', [(0, b"a")], [(1, "broken_json")]),
        ('[{"text":"a"} {"text":"b"}]', [(0, b"a")], [(1, "broken_json")]),
        ('[{"text":"a"},{"text":"b', [(0, b"a")], [(1, "broken_json")]),
        ('[{"text":"a"}] x', [(0, b"a")], [(1, "broken_json")]),
        ('[{"text":"a"},{"text":1},{"text":"c"}]', [(0, b"a"), (2, b"c")], [(1, "not_text")]),
        ('[{"text":"a"},' + "[" * 5000, [(0, b"a")], [(1, "broken_json")]),
        ("17", [], [(0, "broken_json")]),
        ('{\n"data": [{"text": "a"}]\n}\n', [], [(0, "missing_column")]),  # one object is one document
        ('{\n"text": "b"\n}\n', [(0, b"b")], []),
    ],
)
def test_arrays_by_hand(
    tmp_path: Path, text: str, documents: list[tuple[int, bytes]], bad: list[tuple[int, str]]
) -> None:
    (tmp_path / "a.json").write_text(text)

    found = read(tmp_path / "a.json")

    assert (found.documents, found.bad) == (documents, bad)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize(
    ("separator", "indent"), [("\n", 1), ("", None), (" ", None), ("\r", None), (",\n", None), (",", 2)]
)
def test_objects_may_follow_one_another_in_any_layout(
    tmp_path: Path, name: str, separator: str, indent: int | None
) -> None:
    texts = ["a {", "}{ b", "", "d\n"]
    written = separator.join(json.dumps({"text": text}, indent=indent) for text in texts)
    (tmp_path / name).write_bytes((written + separator).encode())

    found = read(tmp_path / name)

    assert (found.documents, found.bad) == (list(enumerate(text.encode() for text in texts)), [])
