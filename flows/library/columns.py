"""Columns of text from any library, as Arrow arrays, and as files beside a store for a profile's sources.

What a library calls missing (None, NaN, NA, NaT, a mask) is null. A text that UTF-8 cannot hold is an error,
or passes unchanged to the reader of sources, which quarantines it. A file is named by its content, so that
what was made from equal texts is found again, however the column was held or divided.
"""

import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokmill.flows.errors import UsageError
from tokmill.flows.run.machine import writable_store
from tokmill.tasks.store.digest import digest_file
from tokmill.tasks.store.disk import reported_as

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tasks.store import Store

ROWS = 1 << 16
"""Rows of one array, but the last."""

OnError = Literal["fail", "quarantine"]
_MISSING = frozenset({"NAType", "NaTType"})
_NAME_CHARS = 24


def named_columns(texts: Any) -> dict[str, Any]:
    """Return columns by source, whose name is text also where it was a number; a single one is `text`.

    Groups of pandas and polars are keyed by tuples, also where they are by one column; that is the name then.
    """
    if not isinstance(texts, Mapping):
        return {"text": texts}
    if not texts:
        raise UsageError("texts names no source; use e.g. {'web': df['text']}")
    alone = [name[0] if isinstance(name, tuple) and len(name) == 1 else name for name in texts]
    named = dict(zip(map(str, alone), texts.values(), strict=True))
    if len(named) < len(texts):
        names = ", ".join(map(repr, texts))
        raise UsageError(f"texts names a source twice, as number and as text: {names}; rename one")
    return named


def sources_of(columns: Mapping[str, Any], store: "Store", on_error: OnError) -> dict[str, Any]:
    """Write columns beside a store, and return the table `sources` of a profile for them.

    A row that is null or not UTF-8 is an error, or goes to quarantine, as `on_error` says.
    """
    writable_store(store.location)
    return {
        source: {
            "files": [_written(column, f"texts[{source!r}]", store, on_error)],
            "format": "arrow",
            "text_column": "text",
            "on_error": on_error,
        }
        for source, column in columns.items()
    }


def _written(column: Any, where: str, store: "Store", on_error: OnError) -> str:
    """Write a column, unless its file is there; return where all machines that use the store find it."""
    folder = store.layout.texts
    unfinished = folder / f".{uuid.uuid4().hex}.unfinished"
    try:
        with reported_as(f"{where} cannot be written beside the store {store.location}"):
            folder.mkdir(parents=True, exist_ok=True)
            _write(column, where, unfinished, on_error)
            place = folder / f"{digest_file(unfinished)[:_NAME_CHARS]}.arrow"
            unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)
    if "://" not in store.location:
        return str(place)
    from tokmill.tasks.remote import location, objects  # noqa: PLC0415 - only for stores behind a URL

    url = location.joined(store.location, f"{place.parent.name}/{place.name}")
    try:
        objects.stat(url)
    except FileNotFoundError:
        objects.upload(place, url)
    return url


def _write(column: Any, where: str, file: Path, on_error: OnError) -> None:
    import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick
    import pyarrow.compute as pc  # noqa: PLC0415

    schema = pa.schema({"text": pa.large_string()})
    first = num_rows = num_null = 0
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for array in arrays_of(column, where, on_error):
            if array.null_count and not num_null:
                first = num_rows + pc.index(pc.is_null(array), True).as_py()
            num_null += array.null_count
            num_rows += len(array)
            writer.write_batch(pa.record_batch([array], schema=schema))
    if not num_rows:
        raise UsageError(f"{where} is empty; give at least one text")
    if num_null and on_error == "fail":
        raise UsageError(
            f"{where}: row {first} is null ({num_null:,} of {num_rows:,} rows); drop these rows, fill them "
            "with '', or pass on_error='quarantine' to leave them out"
        )


def arrays_of(values: Any, where: str, on_error: OnError) -> "Iterator[pa.Array]":
    """Yield the texts of a column as arrays of `large_string`, with nulls; `ROWS` each but the last.

    Raises UsageError with `where` and the row for what is not a column of texts in UTF-8.
    """
    import pyarrow as pa  # noqa: PLC0415

    _check_column(values, where)
    first = 0
    for batch in _batches(values, where):
        try:
            array = pa.array(batch, pa.large_string(), from_pandas=True) if isinstance(batch, list) else batch
            yield array.cast(pa.large_string())
        except (pa.ArrowInvalid, TypeError, UnicodeError):  # some are not UTF-8, or not texts
            items = enumerate(batch if isinstance(batch, list) else batch.to_pylist(), first)
            each = [_text(item, where, row, on_error) for row, item in items]
            yield pa.array(each, pa.large_binary()).view(pa.large_string())
        first += len(batch)


def _check_column(values: Any, where: str) -> None:
    if isinstance(values, str | bytes | bytearray):
        raise UsageError(f"{where}={values!r:.60} is one text; put it into a list")
    if hasattr(values, "collect_schema") and not hasattr(values, "to_arrow"):  # polars has not read it yet
        raise UsageError(f"{where} is a LazyFrame; collect it and pass a column, e.g. df.collect()['text']")
    if hasattr(values, "columns") and hasattr(values, "shape"):
        named = getattr(getattr(values, "schema", None), "names", None)  # Arrow's, whose `columns` hold texts
        names = ", ".join(map(str, list(named if isinstance(named, list) else values.columns)[:8]))
        raise UsageError(f"{where} is a frame with the columns {names}; pass one of them, e.g. df['text']")
    if isinstance(values, Mapping):
        raise UsageError(f"{where} is a table, of which only the keys would be read; pass one of its columns")
    if isinstance(values, Set):
        raise UsageError(f"{where} is a set, whose rows have no order; pass a list, e.g. sorted(texts)")
    if not isinstance(values, Iterable) and not hasattr(values, "__arrow_c_array__"):
        raise UsageError(f"{where} is of type {type(values).__name__}, and must be a column or list of texts")


def _batches(values: Any, where: str) -> "Iterator[pa.Array | list[Any]]":
    """Yield the rows of a column, as Arrow if a library holds it so or can turn it into that."""
    import pyarrow as pa  # noqa: PLC0415

    array = getattr(values, "array", None)  # a Series of pandas, whose index is of no concern
    if hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    elif hasattr(values, "__arrow_array__") or hasattr(array, "__arrow_array__"):  # pandas' own types
        values = pa.array(values if hasattr(values, "__arrow_array__") else array, from_pandas=True)
    if not isinstance(values, pa.Array | pa.ChunkedArray) and hasattr(values, "dtype"):
        values = _of_numpy(values, where)
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        items = iter(values)
        yield from iter(lambda: list(islice(items, ROWS)), [])
        return
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    names = "string large_string string_view binary large_binary binary_view null"
    if str(kind) not in names.split():
        raise UsageError(f"{where} is an Arrow array of {values.type}, and must hold strings")
    chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    for first in range(0, len(chunked), ROWS):
        chunks = chunked.slice(first, ROWS).chunks
        if kind != values.type:
            chunks = [chunk.dictionary_decode() for chunk in chunks]
        yield pa.concat_arrays(chunks)  # without what stands before and behind them


def _of_numpy(values: Any, where: str) -> Any:
    """Return the strings of a numpy array, or of a Series over one, as Arrow; as they are if not possible."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(values, np.ma.MaskedArray):  # its data holds a text where it is masked, too
        hidden, values = np.ma.getmaskarray(values), np.ma.getdata(values).astype(object)
        values[hidden] = None
    try:
        items = np.asarray(values)
    except ValueError as error:  # groups of a DataFrame, say, which are of several lengths
        raise UsageError(f"{where} is of type {type(values).__name__}, and must be one column") from error
    if items.ndim != 1:
        raise UsageError(f"{where} has the shape {items.shape}, and must be one-dimensional")
    if items.dtype.kind not in "UOT" and len(items):
        raise UsageError(f"{where} has the dtype {items.dtype}, and must hold texts")
    if items.dtype.kind == "U":
        try:
            return pa.array(items)
        except UnicodeError:  # a lone surrogate
            return values
    return values if len(items) else []


def _text(item: Any, where: str, row: int, on_error: OnError) -> bytes | None:
    """Return a text as bytes, None for what is missing: None, a NaN of any width, what pandas has for it."""
    if item is None or type(item).__name__ in _MISSING or (isinstance(item, Real) and math.isnan(item)):
        return None
    if not isinstance(item, str | bytes | bytearray):
        shown = f"{item!r:.60} is of type {type(item).__name__}"
        raise UsageError(f"{where}: row {row}: {shown}, and must be a text")
    data = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else bytes(item)
    if on_error == "fail":
        try:
            data.decode()
        except UnicodeDecodeError as error:
            problem = "half a surrogate pair" if isinstance(item, str) else error.reason
            raise UsageError(
                f"{where}: row {row} is not UTF-8 ({problem}); decode it, or pass on_error='quarantine' to "
                "leave it out"
            ) from error
    return data
