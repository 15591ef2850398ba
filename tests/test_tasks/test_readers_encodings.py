"""Arrays and objects in JSON files, and text in other encodings than UTF-8."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.test_tasks.reading import ingested, read
from tokmill.tasks.formats.text.shard import read_shard
from tokmill.tasks.formats.text.sources import ReadOptions

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["text", "id", "x"]), VALUES) | VALUES, max_size=6),
    st.sampled_from([None, 1]),
)
def test_an_array_is_read_as_the_lines_of_its_elements(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: int | None
) -> None:
    folder, values = (
        tmp_path_factory.mktemp("arrays"),
        [{}, *values],
    )  # the first is no list: the lines are lines
    (folder / "a.json").write_text(json.dumps(values, indent=indent))
    (folder / "a.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))

    assert read(folder / "a.json", id_column="id") == read(folder / "a.jsonl", id_column="id")


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


def test_one_object_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{\n  "data": [{"text": "a"}]\n}\n')
    (tmp_path / "b.json").write_text('{\n  "text": "b"\n}\n')

    assert read(tmp_path / "a.json").bad == [(0, "missing_column")]
    assert read(tmp_path / "b.json").documents == [(0, b"b")]


def test_shards_of_an_array_hold_its_documents(tmp_path: Path) -> None:
    texts = [f"{number} " + "ä" * (number % 7000) for number in range(300)]
    (tmp_path / "a.json.gz").write_bytes(
        gzip.compress(json.dumps([{"text": text} for text in texts]).encode())
    )

    made = ingested(tmp_path, {"s": {"files": ["a.json.gz"]}})

    shards = made.corpus.shards("s")
    found = [
        text for shard in shards for batch in read_shard(shard, made.roots) for text in batch.documents()
    ]
    assert len(shards) > 1
    assert [text.decode() for text in found] == texts


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


def test_a_large_file_in_an_encoding_is_cut_into_shards(tmp_path: Path) -> None:
    lines = [f"{number} 吾輩は猫である" * (number % 50 + 1) for number in range(5000)]
    (tmp_path / "a.txt").write_bytes("\n".join(lines).encode("shift_jis"))

    made = ingested(tmp_path, {"s": {"files": ["a.txt"], "format": "lines", "encoding": "sjis"}})

    shards = made.corpus.shards("s")
    found = [
        text for shard in shards for batch in read_shard(shard, made.roots) for text in batch.documents()
    ]
    assert len(shards) > 1
    assert [text.decode() for text in found] == lines


def test_only_the_document_with_invalid_bytes_is_bad(tmp_path: Path) -> None:
    # The invalid bytes are the UTF-8 of a character: they must not be decoded as that character.
    (tmp_path / "a.txt").write_bytes(
        "一\n".encode("shift_jis") + b"a\x82 \xf0\x9f\x99\x82\n" + "二\n".encode("shift_jis")
    )

    found = read(tmp_path / "a.txt", format="lines", encoding="shift_jis")

    assert found.documents == [(0, "一".encode()), (2, "二".encode())]
    assert found.bad == [(1, "invalid_encoding")]


@pytest.mark.parametrize("name", ["utf8", "UTF-8", "u8", "sjis", "SHIFT_JIS", "latin-1"])
def test_aliases_of_an_encoding_are_one(name: str) -> None:
    assert ReadOptions(encoding=name) in (
        ReadOptions(),
        ReadOptions(encoding="shift_jis"),
        ReadOptions(encoding="iso8859-1"),
    )


@pytest.mark.parametrize("name", ["klingon", "rot13", "base64", "zlib", "idna", "", "x\0y", "undefined"])
def test_an_encoding_that_is_not_of_text_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="is not one that Python knows"):
        ReadOptions(encoding=name)


def test_columnar_files_have_no_encoding() -> None:
    with pytest.raises(ValidationError, match="is not used by format='parquet'"):
        ReadOptions(encoding="shift_jis", format="parquet")
