"""JSON lines: what a document is, and every way in which a line can be bad."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.reading import read

BAD_LINES = {
    b'{"text": "a"': "broken_json",
    b"nonsense": "broken_json",
    b'{"text": NaN}': "broken_json",
    b'{"text": "a"} {"text": "b"}': "broken_json",
    b"[1, 2]": "not_an_object",
    b'"text"': "not_an_object",
    b"null": "not_an_object",
    b"7": "not_an_object",
    b"{}": "missing_column",
    b'{"Text": "a"}': "missing_column",
    b'{"text": null}': "null_text",
    b'{"text": 7}': "not_text",
    b'{"text": true}': "not_text",
    b'{"text": ["a"]}': "not_text",
    b'{"text": {"text": "a"}}': "not_text",
    b'{"text": "\xff"}': "invalid_utf8",
    b'{"text": "\\ud800"}': "invalid_utf8",
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


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_put_aside_and_the_others_are_kept(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')

    found = read(path)

    assert found.documents == [(0, b"before"), (2, b"after")]
    assert found.bad == [(1, BAD_LINES[line])]


def test_another_text_column(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b'{"text": 1, "body": "b"}\n{"text": "t"}\n')

    found = read(path, text_column="body")

    assert found.texts == [b"b"]
    assert found.bad == [(1, "missing_column")]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("scratch")


@given(st.lists(st.text(max_size=20), max_size=10), st.booleans())
def test_any_text_comes_back(scratch: Path, texts: list[str], escaped: bool) -> None:
    path = scratch / "a.jsonl"
    lines = [json.dumps({"text": text}, ensure_ascii=escaped).encode() for text in texts]
    path.write_bytes(b"\n".join(lines))

    assert read(path).documents == list(enumerate(text.encode() for text in texts))
