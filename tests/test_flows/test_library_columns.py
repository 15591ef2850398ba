"""Columns of text: every library's, nulls, and what is no column."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.test_tasks.reading import read
from tokmill.flows.errors import UsageError
from tokmill.flows.library.columns import ROWS, arrays_of, named_columns, sources_of
from tokmill.tasks.store import Store

TEXT = ["one", "", "zwei é 日本", "NaN", "<NA>"]
WITH_NULL = ["one", None, "zwei é 日本", "NaN"]

SAME = {
    "list": TEXT,
    "tuple": tuple(TEXT),
    "bytes": [text.encode() for text in TEXT],
    "numpy": np.array(TEXT),
    "numpy object": np.array(TEXT, object),
    "numpy strings": np.array(TEXT, np.dtypes.StringDType()),
    "arrow": pa.array(TEXT),
    "large": pa.array(TEXT, pa.large_string()),
    "view": pa.array(TEXT, pa.string_view()),
    "binary": pa.array([text.encode() for text in TEXT], pa.binary()),
    "dictionary": pa.array(TEXT).dictionary_encode(),
    "chunked": pa.chunked_array([pa.array(TEXT[:2]), pa.array([], pa.string()), pa.array(TEXT[2:])]),
    "sliced": pa.array(["before", *TEXT, "behind"]).slice(1, 5),
    "chunked dictionaries": pa.chunked_array(
        [pa.array(TEXT[:3]).dictionary_encode(), pa.array(TEXT[3:]).dictionary_encode()]
    ),
    "pandas": pd.Series(TEXT),
    "pandas object": pd.Series(TEXT, dtype=object),
    "pandas string": pd.Series(TEXT, dtype="string"),
    "pandas arrow": pd.Series(TEXT, dtype=pd.ArrowDtype(pa.large_string())),
    "pandas category": pd.Series(TEXT, dtype="category"),
    "pandas twice the same index": pd.Series(TEXT, index=[7, 7, 7, 1, 1]),
    "pandas index": pd.Index(TEXT),
}
NULLS = {
    "list": WITH_NULL,
    "list with NaN": ["one", float("nan"), *WITH_NULL[2:]],
    "numpy NaN": np.array(["one", np.float32("nan"), *WITH_NULL[2:]], object),
    "numpy masked": np.ma.MaskedArray(["one", "hidden", *WITH_NULL[2:]], [False, True, False, False]),
    "arrow": pa.array(WITH_NULL),
    "pandas object with NaN": pd.Series(["one", np.nan, *WITH_NULL[2:]], dtype=object),
    "pandas NA": pd.Series(["one", pd.NA, *WITH_NULL[2:]], dtype=object),
    "pandas NaT": pd.Series(["one", pd.NaT, *WITH_NULL[2:]], dtype=object),
    "pandas string": pd.Series(WITH_NULL, dtype="string"),
    "pandas category": pd.Series(WITH_NULL, dtype="category"),
}


def texts_of(column: Any) -> list[str | None]:
    """The rows of a column, null as None."""
    return [text for array in arrays_of(column, "texts", "fail") for text in array.to_pylist()]


def test_every_kind_of_column_gives_its_texts_and_what_is_missing_is_null() -> None:
    """Text that looks as if it were missing is text."""
    for name, column in SAME.items():
        assert texts_of(column) == TEXT, name
    for name, column in NULLS.items():
        assert texts_of(column) == WITH_NULL, name


def test_a_text_that_utf8_cannot_hold_is_treated_as_where_files_are_read(tmp_path: Path) -> None:
    for bad, good in (("a\ud800b", "c"), (b"\xff", b"c")):
        columns = [[bad, good], np.array([bad, good], object), pd.Series([bad, good], dtype=object)]
        columns.append(np.array([bad, good]) if isinstance(bad, str) else pa.array([bad, good]))
        for column in columns:
            with pytest.raises(UsageError, match=r"texts: row 0 is not UTF-8"):
                texts_of(column)
            (source,) = sources_of({"web": column}, Store(tmp_path), "quarantine").values()
            found = read(Path(source["files"][0]), format="arrow")
            assert (found.texts, found.bad) == ([b"c"], [(0, "invalid_utf8")])


@pytest.mark.consumers
def test_columns_of_polars_give_their_texts() -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    assert texts_of(pl.Series(TEXT)) == texts_of(pl.Series(TEXT, dtype=pl.Categorical)) == TEXT
    assert texts_of(pl.Series(WITH_NULL)) == WITH_NULL
    with pytest.raises(UsageError, match="id, body"):
        texts_of(pl.DataFrame({"id": [1], "body": ["a"]}))
    with pytest.raises(UsageError, match=r"LazyFrame; collect it .* df\.collect\(\)\['text'\]"):
        texts_of(pl.LazyFrame({"id": [1], "body": ["a"]}))


FRAME = {"id": [1], "body": ["the text"]}


WRONG = (
    ("abc", "one text"),
    (["a", 5], "row 1: 5 is of type int"),
    ([*["a"] * ROWS, 5], f"row {ROWS}: 5 is of type int"),
    (np.arange(3), "dtype int64"),
    (pa.array([1, 2]), "int64"),
    (pd.Series([1, 2], dtype="Int64"), "must hold"),
    (pd.DataFrame(FRAME), "id, body"),
    (pa.table(FRAME), "the columns id, body;"),
    (pa.record_batch(FRAME), "the columns id, body;"),
    (pd.DataFrame({"k": [1, 1, 2], "t": ["a", "b", "c"]}).groupby("k")["t"], "SeriesGroupBy"),
    ({"b": ["the text"]}, "only the keys"),
    ({"a", "b"}, "no order"),
    (np.array([["a"]]), "(1, 1)"),
    (5, "of type int"),
    ([b"a", b"\xff"], "row 1 is not UTF-8"),
    (pa.array([b"a", b"\xff"]), "row 1 is not UTF-8"),
    ([["a"]], "row 0"),
)


@pytest.mark.parametrize(("column", "says"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_column_of_texts_is_named(column: Any, says: str) -> None:
    with pytest.raises(UsageError) as told:
        texts_of(column)
    assert says in str(told.value)
    assert str(told.value).startswith("texts")


def test_the_same_texts_are_the_same_file_whatever_they_came_from(tmp_path: Path) -> None:
    many = [f"text {number}" for number in range(ROWS + 3)]
    halves = pa.chunked_array([pa.array(many[:5]), pa.array(many[5:])])
    files = {
        sources_of({"web": column}, Store(tmp_path), "fail")["web"]["files"][0]
        for column in (many, iter(many), halves, pd.Series(many), np.array(many))
    }
    assert [str(path) for path in (tmp_path / ".texts").iterdir()] == [*files]


def test_null_rows_are_refused_by_number_or_kept_for_quarantine_and_nothing_unfinished_stays(
    tmp_path: Path,
) -> None:
    def failing() -> Iterator[str]:
        yield "a"
        raise ZeroDivisionError

    store, late = Store(tmp_path), [*["a"] * (ROWS + 1), None, "b"]
    for column, said in (
        (WITH_NULL, r"texts\['web'\]: row 1 is null \(1 of 4 rows\)"),
        (late, rf"row {ROWS + 1} is null \(1 of {ROWS + 3:,} rows\)"),
        *((empty, r"texts\['web'\] is empty") for empty in ([], np.array([]), pd.Series([], dtype=object))),
    ):
        with pytest.raises(UsageError, match=said):
            sources_of({"web": column}, store, "fail")
    with pytest.raises(ZeroDivisionError):
        sources_of({"web": failing()}, store, "fail")
    (source,) = sources_of({"web": WITH_NULL}, store, "quarantine").values()
    assert pa.ipc.open_file(source["files"][0]).read_all()["text"].to_pylist() == WITH_NULL
    assert len(list((tmp_path / ".texts").iterdir())) == 1


def test_sources_may_be_named_by_the_keys_of_a_grouping_and_two_must_differ() -> None:
    frame = pd.DataFrame({"year": [2024, 2025, 2024], "text": ["a", "b", "c"]})
    for by in ("year", ["year"]):  # the keys of the second are tuples
        named = named_columns({year: rows["text"] for year, rows in frame.groupby(by)})
        assert {name: texts_of(each) for name, each in named.items()} == {"2024": ["a", "c"], "2025": ["b"]}
    with pytest.raises(UsageError, match=r"source twice.*2024, '2024'"):
        named_columns({2024: ["a"], "2024": ["b"]})
