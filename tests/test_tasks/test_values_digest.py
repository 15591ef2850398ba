"""The digest of a Parquet file's values: equal for equal tables, whoever wrote the file and however."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.tasks.core.database import connect
from tokmill.tasks.store.digest import FileEntry, content_digest, stored_digest, values_digest

_TEXTS = st.one_of(st.none(), st.text(max_size=4))
_LISTS = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=4))
_ROWS = st.lists(
    st.tuples(_TEXTS, _LISTS, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats()), max_size=40
)


def _table(rows) -> pa.Table:
    types = [pa.string(), pa.list_(pa.int32()), pa.int64(), pa.bool_(), pa.float64()]
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=list("abcde"))


def _written(path: Path, table: pa.Table, **how) -> str | None:
    pq.write_table(table, path, **how)
    return values_digest(path)


@settings(max_examples=40)
@given(_ROWS, st.integers(1, 50), st.sampled_from(["zstd", "snappy", "none"]), st.booleans())
def test_how_a_table_is_written_does_not_matter(tmp_path_factory, rows, group, codec, dictionary) -> None:
    folder, table = tmp_path_factory.mktemp("values"), _table(rows)
    before = _written(folder / "a.parquet", table, compression="zstd")
    how = {"row_group_size": group, "compression": codec, "use_dictionary": dictionary, "version": "2.4"}
    assert _written(folder / "b.parquet", table, **how, write_statistics=False) == before
    large = table.cast(table.schema.set(0, pa.field("a", pa.large_string())))
    assert _written(folder / "c.parquet", large) == before


@settings(max_examples=40)
@given(_ROWS, _ROWS)
def test_other_values_have_another_digest(tmp_path_factory, rows, others) -> None:
    folder = tmp_path_factory.mktemp("values")
    equal = _bits(rows) == _bits(others)
    one, other = (_written(folder / f"{k}.parquet", _table(each)) for k, each in enumerate((rows, others)))
    assert (one == other) == equal


def _bits(rows) -> list[tuple[object, ...]]:
    return [(*row[:4], np.float64(row[4]).tobytes()) for row in rows]


PAIRS = {
    "a null and an empty text": (pa.array([None], pa.string()), pa.array([""], pa.string())),
    "a null and a zero": (pa.array([None], pa.int64()), pa.array([0], pa.int64())),
    "a null and an empty list": (pa.array([None], pa.list_(pa.int8())), pa.array([[]], pa.list_(pa.int8()))),
    "texts cut elsewhere": (pa.array(["ab", "c"]), pa.array(["a", "bc"])),
    "lists cut elsewhere": (pa.array([[1, 2], [3]]), pa.array([[1], [2, 3]])),
    "an empty list first or last": (pa.array([[], [1]]), pa.array([[1], []])),
    "another width": (pa.array([1], pa.int32()), pa.array([1], pa.int64())),
    "another place of a null": (pa.array([None, 1]), pa.array([1, None])),
    "plus and minus zero": (pa.array([0.0]), pa.array([-0.0])),
    "fields of a struct": (pa.array([{"x": 1, "y": 2}]), pa.array([{"x": 2, "y": 1}])),
    "text and bytes": (pa.array(["a"]), pa.array([b"a"])),
    "decimals": (pa.array([Decimal("1.20")]), pa.array([Decimal("1.30")])),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_alike_is_not_taken_for_equal(tmp_path: Path, name: str) -> None:
    one, other = (_written(tmp_path / f"{k}.parquet", pa.table({"x": c})) for k, c in enumerate(PAIRS[name]))
    assert one is not None
    assert other not in {one, None}


def test_duckdb_and_pyarrow_write_the_same_table_differently_with_one_digest(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(["x", None, "y"]), "n": pa.array([1, 2, None], pa.uint64())})
    with connect() as database:
        database.register("given", table)
        database.table("given").write_parquet(str(tmp_path / "duckdb.parquet"))
    assert _written(tmp_path / "pyarrow.parquet", table) == values_digest(tmp_path / "duckdb.parquet")


def test_the_content_digest_covers_values_where_there_are_some() -> None:
    one = FileEntry(path="a.parquet", size_bytes=5, digest="1" * 64, values_digest="3" * 64)
    other = FileEntry(path="a.parquet", size_bytes=6, digest="2" * 64, values_digest="3" * 64)
    assert content_digest([one]) == content_digest([other])
    assert stored_digest([one]) != stored_digest([other])
    plain = [entry.model_copy(update={"values_digest": None}) for entry in (one, other)]
    assert content_digest(plain[:1]) != content_digest(plain[1:])
    assert content_digest(plain) == stored_digest(plain)
    assert "values_digest" not in plain[0].model_dump_json()


def test_how_a_file_is_compressed_does_not_matter(tmp_path: Path) -> None:
    text = b'{"input_ids": [1, 2, 3]}\n' * 999
    for level, content in ((1, text), (19, text), (3, text[1:])):
        (tmp_path / f"{level}.jsonl.zst").write_bytes(zstandard.ZstdCompressor(level).compress(content))
    one, other, third = (values_digest(tmp_path / f"{level}.jsonl.zst") for level in (1, 19, 3))
    assert one == other
    assert one is not None
    assert third != one
