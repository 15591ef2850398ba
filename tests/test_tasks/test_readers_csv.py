"""CSV: quoting, line ends inside fields, ragged rows; the csv module's writer as the oracle."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tasks.reading import read
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.content import Span
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import ReadOptions


def test_documents_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbfid,text\r\n1,plain\r\n2,"two\nlines, and a ""quote"""\r\n\r\n3,\r\n,"caf\xc3\xa9"'
    )

    found = read(path, id_column="id")

    assert found.texts == [b"plain", b'two\nlines, and a "quote"', b"", "café".encode()]
    assert [row for row, _ in found.documents] == [0, 1, 2, 3]
    assert found.ids == ["1", "2", "3", ""]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"1,2,3", "broken_csv"),
        (b"1", "broken_csv"),
        (b'1,"a"b', "broken_csv"),
        (b"1,\xff", "invalid_utf8"),
    ],
)
def test_a_bad_row_is_reported_and_the_others_are_kept(tmp_path: Path, row: bytes, reason: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text\n0,before\n" + row + b"\n2,after\n")

    found = read(path)

    assert found.documents == [(0, b"before"), (2, b"after")]
    assert found.bad == [(1, reason)]


def test_an_open_quote_takes_the_rest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'text\ngood\n"open\nand\nmore\n')

    found = read(path)

    assert found.documents == [(0, b"good")]
    assert found.bad == [(1, "broken_csv")]


def test_a_byte_that_is_not_utf8_in_another_column_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text\n\xff,fine\n")

    found = read(path, id_column="id")

    assert found.texts == [b"fine"]
    assert found.ids == ["\\xff"]


@pytest.mark.parametrize(("name", "delimiter"), [("a.tsv", None), ("a.csv", "\t"), ("a.csv", ";")])
def test_other_delimiters(tmp_path: Path, name: str, delimiter: str | None) -> None:
    path = tmp_path / name
    path.write_text(f"id{delimiter or chr(9)}text\n1{delimiter or chr(9)}a,b\n")

    assert read(path, delimiter=delimiter).texts == [b"a,b"]


def test_a_missing_column_names_those_that_exist_the_nearest_first(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,texts,body\n1,a,b\n")

    with pytest.raises(SourceError, match=r"a\.csv: text_column='text' is not among .* \(texts, id, body\)"):
        read(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"text\n", b"text"])
def test_files_without_a_row(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)

    assert read(path).documents == []


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
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
    with pytest.raises(ValueError, match=r"columns=\['id', 'body'\] must name 'text', too"):
        ReadOptions(columns=("id", "body"))
    with pytest.raises(ValueError, match="quoting='none' is not used by format='lines'"):
        ReadOptions(format="lines", quoting="none")


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        ('1,"he said "hi", and\nleft, too"\n2,after\n', ["after"]),
        ('1,"a"b\n2,a fragment\nc",d\n3,"after, too"\n', ["after, too"]),
        ('1,"a"b\n' + "2,after\n" * 120 + '3,"c"d\n', ["after"] * 120),
    ],
)
def test_a_broken_field_takes_the_rows_that_may_belong_to_it(
    tmp_path: Path, rest: str, kept: list[str]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,text\n" + rest)

    found = read(path)

    assert found.texts == [text.encode() for text in kept]
    assert found.bad[0] == (0, "broken_csv")


def test_after_a_broken_field_of_a_single_column_nothing_is_certain(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text\n"he said "hi" and\na fragment"\nanother document\n')

    assert read(path).documents == []


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("scratch")


@given(st.lists(st.text(alphabet='ab,"\n\r é', max_size=12), min_size=1, max_size=8), st.integers(0, 7))
def test_any_text_comes_back_from_any_row_on(scratch: Path, texts: list[str], first: int) -> None:
    path = scratch / "a.csv"
    written = io.StringIO(newline="")
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    writer.writerows([["id", "text"], *([index, text] for index, text in enumerate(texts))])
    path.write_bytes(written.getvalue().encode())

    assert read(path).documents == list(enumerate(text.encode() for text in texts))

    first %= len(texts)
    (piece,) = read_file_batches(path, "csv", ReadOptions())
    start, end = int(piece.bounds[first, 0]), int(piece.bounds[-1, 1])
    rest = read(path, Span(first, len(texts) - first, start, end))
    assert rest.documents == list(enumerate((text.encode() for text in texts[first:]), first))
