"""CSV, and text in other encodings than UTF-8."""

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.test_tasks.reading import documents, ingested, read
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.content import Span
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import ReadOptions


def test_documents_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbfid,text\r\n1,plain\r\n2,"two\nlines, and a ""quote"""\r\n\r\n3,\r\n'
        b'1,2,3\r\n1\r\n1,\xff\r\n,"caf\xc3\xa9"'
    )

    found = read(path, id_column="id")

    texts = [b"plain", b'two\nlines, and a "quote"', b"", "café".encode()]
    assert found.documents == list(zip((0, 1, 2, 6), texts, strict=True))
    assert found.bad == [(3, "broken_csv"), (4, "broken_csv"), (5, "invalid_utf8")]
    assert found.ids == ["1", "2", "3", ""]


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        *(("a.csv", empty, []) for empty in ("", "\n\n", "text\n", "text")),
        ("a.csv", 'id;text\n1;a, b\n2;"c; ""d"""\n', ["a, b", 'c; "d"']),
        ("a.csv", "\ufeffsep=|\r\nid|text\r\n1|a, b\r\n", ["a, b"]),
        ("a.csv", 'id,text\r1,"a\nb"\r2,c\r', ["a\nb", "c"]),
        ("a.csv", 'id,text\n1,a\rb\n2,"c\rd"\r\n', ["a\rb", "c\rd"]),
        ("a.csv", r'id,text|1,"say \"hi, you\" \\ \n"|2,b|', [r'say "hi, you" \ \n', "b"]),
        ("a.tsv", 'id\ttext\n1\t"Hi," she said\n2\t"a"\n', ['"Hi," she said', '"a"']),
        ("a.tsv", 'id\ttext\n1\t"a ""b"" c"\n2\td\n', ['a "b" c', "d"]),
        ("a.tsv", 'id\ttext\n"1"\t"a"\n"2"\t"b"\n', ["a", "b"]),
        ("a.tsv", 'id\ttext\n1\t"a\tb\nc"\n', ["a\tb\nc"]),
        ("a.tsv", r"id+text+n|1+a\tb\nc\\n+\N|\.|".replace("+", "\t"), ["a\tb\nc\\n"]),
        ("a.tsv", "id\ttext\n1\ta\\\nb\n2\tc\\\td\n", ["a\nb", "c\td"]),
    ],
)
def test_the_beginning_of_a_file_shows_how_it_is_written(
    tmp_path: Path, name: str, content: str, texts: list[str]
) -> None:
    lines = content if "\n" in content or "\r" in content else content.replace("|", "\n")
    (tmp_path / name).write_bytes(lines.encode())

    assert read(tmp_path / name).texts == [text.encode() for text in texts]


@pytest.mark.parametrize(
    ("name", "content", "setting"),
    [
        ("a.tsv", 'id\ttext\n1\t"a"\n2\tb\n', "quoting = 'none' if it does, else quoting = 'double'"),
        ("a.tsv", 'id\ttext\n1\t"a ""b"""\n2\tsay "hi"\n', "quoting = 'none' if it does"),
        ("a.tsv", "id\ttext\n1\tC:\\new\n", "quoting = 'none' if it does, else quoting = 'escapes'"),
        ("a.tsv", "id\ttext\n" + "1\ta\n" * 40_000 + '2\t"b"\n', "quoting = 'none' if they do"),
        ("a.csv", "one,a document\ntwo,another\n", r"\(one, a document\); .* or columns if it has no header"),
    ],
)
def test_what_the_beginning_does_not_show_must_be_set(
    tmp_path: Path, name: str, content: str, setting: str
) -> None:
    (tmp_path / name).write_text(content)

    with pytest.raises(SourceError, match=rf"{name}: .*{setting}"):
        read(tmp_path / name)


def test_settings_say_how_a_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'1|"a"\\n|x\n2|\\N|y\n')

    columns = ("id", "text", "z")
    assert read(path, columns=columns, quoting="none").texts == [b'"a"\\n', b"\\N"]
    escaped = read(path, columns=columns, quoting="escapes")
    assert (escaped.texts, escaped.bad) == ([b'"a"\n'], [(1, "null_text")])


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ('id,text\n1,"he said "hi", and\nleft, too"\n2,after\n', ["after"]),
        ('id,text\n1,"a"b\n2,a fragment\nc",d\n3,"after, too"\n', ["after, too"]),
        ('id,text\n1,"a"b\n' + "2,after\n" * 120 + '3,"c"d\n', ["after"] * 120),
        # every line of a single column has as many fields
        ('text\n"he said "hi" and\na fragment"\nanother document\n', []),
    ],
)
def test_a_broken_field_takes_the_rows_that_may_belong_to_it(
    tmp_path: Path, content: str, kept: list[str]
) -> None:
    (tmp_path / "a.csv").write_text(content)

    found = read(tmp_path / "a.csv")

    assert found.texts == [text.encode() for text in kept]
    assert found.bad[0] == (0, "broken_csv")


@given(st.lists(st.text(alphabet='ab,"\n\r é', max_size=12), min_size=1, max_size=8), st.integers(0, 7))
def test_any_text_comes_back_from_any_row_on(scratch: Path, texts: list[str], first: int) -> None:
    path, written = scratch / "a.csv", io.StringIO(newline="")
    rows = [["id", "text"], *([index, text] for index, text in enumerate(texts))]
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows(rows)
    path.write_bytes(written.getvalue().encode())

    assert read(path).documents == list(enumerate(text.encode() for text in texts))

    first %= len(texts)
    (piece,) = read_file_batches(path, "csv", ReadOptions())
    start, end = int(piece.bounds[first, 0]), int(piece.bounds[-1, 1])
    rest = read(path, Span(first, len(texts) - first, start, end))
    assert rest.documents == list(enumerate((text.encode() for text in texts[first:]), first))


JAPANESE = "吾輩は猫である。\n名前はまだ無い。\nどこで生れたか頓と見當がつかぬ。"


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "iso2022_jp", "utf-16", "utf-16-le", "gb18030"])
@pytest.mark.parametrize(
    "options", [{}, {"format": "lines"}, {"format": "delimited", "delimiter": "。"}], ids=str
)
def test_text_in_an_encoding_equals_the_text_in_utf_8(
    tmp_path: Path, encoding: str, options: dict[str, str]
) -> None:
    text = (JAPANESE + "\n") * 9000  # more than one block
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    (tmp_path / "b.txt").write_text(text, encoding="utf-8")

    found = read(tmp_path / "a.txt", encoding=encoding, **options)

    assert found == read(tmp_path / "b.txt", **options)


TEXTS = [f"{number} 吾輩は猫である" * (number % 50 + 1) for number in range(3000)]


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("a.json.gz", gzip.compress(json.dumps([{"text": text} for text in TEXTS]).encode()), {}),
        ("a.txt", "\n".join(TEXTS).encode("shift_jis"), {"format": "lines", "encoding": "sjis"}),
    ],
    ids=["array", "encoding"],
)
def test_shards_of_what_is_read_from_its_start_hold_its_documents(
    tmp_path: Path, name: str, data: bytes, options: dict[str, str]
) -> None:
    (tmp_path / name).write_bytes(data)

    made = ingested(tmp_path, {"s": {"files": [name], **options}})

    assert len(made.corpus.shards("s")) > 1
    assert documents(made, "s") == [text.encode() for text in TEXTS]


def test_only_the_document_with_invalid_bytes_is_bad(tmp_path: Path) -> None:
    # The invalid bytes are the UTF-8 of a character: they must not be decoded as that character.
    (tmp_path / "a.txt").write_bytes(
        "一\n".encode("shift_jis") + b"a\x82 \xf0\x9f\x99\x82\n" + "二\n".encode("shift_jis")
    )

    found = read(tmp_path / "a.txt", format="lines", encoding="shift_jis")

    assert found.documents == [(0, "一".encode()), (2, "二".encode())]
    assert found.bad == [(1, "invalid_encoding")]


@pytest.mark.parametrize("name", ["klingon", "rot13", "base64", "zlib", "idna", "", "x\0y", "undefined"])
def test_an_encoding_that_is_not_of_text_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="is not one that Python knows"):
        ReadOptions(encoding=name)
