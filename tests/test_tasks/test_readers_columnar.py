"""Parquet and Arrow in all their widths: row groups, nulls, slices, streams, damage."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.test_tasks.reading import read, written
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.content import Span

TEXTS = ["one", "", None, "zwei 🙂", "drei"]
KEPT = [(0, b"one"), (1, b""), (3, "zwei 🙂".encode()), (4, b"drei")]
TYPES = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
]


@pytest.mark.parametrize(
    ("container", "kind"),
    [
        *((container, kind) for container in ("parquet", "arrow", "stream") for kind in TYPES),
        ("arrow", pa.string_view()),
    ],
    ids=str,
)
def test_documents_by_hand(tmp_path: Path, container: str, kind: Any) -> None:
    path = tmp_path / f"a.{'parquet' if container == 'parquet' else 'arrow'}"
    path.write_bytes(written(container, TEXTS, text_type=kind))

    found = read(path, id_column="id")

    assert (found.documents, found.bad) == (KEPT, [(2, "null_text")])
    assert found.ids == ["0", "1", "3", "4"]


def test_bytes_that_are_not_utf8_are_found_one_by_one(tmp_path: Path) -> None:
    # Each half of the é is invalid by itself, though the buffer as a whole is valid.
    texts = pa.table({"text": pa.array([b"a", b"\xc3", b"\xa9", b"b"], pa.binary())})
    pq.write_table(texts, tmp_path / "a.parquet")

    found = read(tmp_path / "a.parquet")

    assert found.documents == [(0, b"a"), (3, b"b")]
    assert found.bad == [(1, "invalid_utf8"), (2, "invalid_utf8")]


@pytest.mark.parametrize("span", [Span(0, 5), Span(1, 1), Span(3, 2), Span(4, 1)])
def test_spans_cross_row_groups(tmp_path: Path, span: Span) -> None:
    rows = range(span.first_row, span.first_row + (span.num_rows or 0))

    for name in ("a.parquet", "a.arrow"):
        (tmp_path / name).write_bytes(written(name[2:], TEXTS))
        assert read(tmp_path / name, span).documents == [one for one in KEPT if one[0] in rows]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"id": ["x"], "test": ["y"]}, {}, r"a\.parquet: text_column='text' is not among .* \(test, id\)"),
        (
            {"id": ["x"], "test": ["y"]},
            {"text_column": "test", "id_column": "ids"},
            r"id_column='ids' is not among .* \(id, test\)",
        ),
        ({"text": [1, 2], "body": ["a", "b"]}, {}, r"'text' holds int64, not text; .*\(body\)"),
    ],
)
def test_a_wrong_column_concerns_the_file(
    tmp_path: Path, columns: dict[str, list[Any]], options: dict[str, str], message: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")

    with pytest.raises(SourceError, match=message):
        read(tmp_path / "a.parquet", on_error="quarantine", **options)


@pytest.mark.parametrize(
    "damage", [lambda stream: stream[:-8], lambda stream: stream + stream], ids=["cut", "two"]
)
def test_a_stream_has_one_end_marker_at_its_end(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(damage(written("stream", TEXTS)))

    found = read(path)

    assert (found.documents, found.bad) == (KEPT, [(2, "null_text"), (5, "broken_file")])


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_page_checksums_and_numbers_of_rows_are_verified(tmp_path: Path, compression: str) -> None:
    dice, path = random.Random(0), tmp_path / "a.parquet"
    texts = [f"{number} {dice.randbytes(20).hex()}" for number in range(200)]
    how = {"row_group_size": 70, "compression": compression, "write_page_checksum": True}
    pq.write_table(pa.table({"text": texts}), path, **how)
    content = path.read_bytes()
    for part in (len(content), 700) * 150:  # anywhere, and in the footer
        place = len(content) - 1 - dice.randrange(part)
        flipped = bytes([content[place] ^ 1 << dice.randrange(8)])
        path.write_bytes(content[:place] + flipped + content[place + 1 :])
        try:
            found = read(path)
        except SourceError:  # the column's name
            continue

        assert found.texts == [text.encode() for text in texts[: len(found.texts)]]
        assert len(found.texts) == len(texts) or found.bad


@pytest.mark.parametrize(
    ("ids", "written"),
    [
        ([[1, 2], None], ["[1, 2]", None]),
        ([b"\xff", b"a"], [repr(b"\xff"), repr(b"a")]),
        ([b"x", b"a"], ["x", "a"]),
        ([1.5, 2.0], ["1.5", "2"]),
    ],
)
def test_an_id_may_be_anything(tmp_path: Path, ids: list[Any], written: list[str | None]) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "id": pa.array(ids)}), tmp_path / "a.parquet")

    assert read(tmp_path / "a.parquet", id_column="id").ids == written
