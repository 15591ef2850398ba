"""Columns of text from any library, as Arrow arrays of a fixed number of rows.

What a library calls missing (None, NaN, NA, NaT, a mask) is null. A text that UTF-8 cannot hold is an
error, or passes unchanged to the reader of sources, which quarantines it. How the column was divided makes
no difference.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1 << 16
"""Rows of one array, but the last."""

OnError = Literal["fail", "quarantine"]
_MISSING = frozenset({"NAType", "NaTType"})


def arrays_of(values: Any, where: str, on_error: OnError) -> "Iterator[pa.Array]":
    """Yield the texts of a column as arrays of `large_string`, with nulls; `ROWS` each but the last.

    Args:
        values: the column; an iterator is read once.
        where: what to call it in errors, e.g. `texts['web']`.
        on_error: whether a text that is not UTF-8 is an error.

    Raises:
        UsageError: it is not a column of texts, or one is not UTF-8; the message has the row.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

    _check_column(values, where)
    values = _unmasked(values)
    found = _as_arrow(values, where)
    if found is None:
        yield from _from_items(iter(values), where, on_error)
        return
    chunked = found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])
    for first in range(0, len(chunked), ROWS):
        part = _one(chunked.slice(first, ROWS))
        try:
            yield part.cast(pa.large_string())
        except pa.ArrowInvalid:
            yield _unchecked(part.to_pylist(), where, first, on_error)


def named_columns(texts: Any, what: str = "texts") -> dict[str, Any]:
    """Return columns by source, whose name is text also where it was a number; a single one is `text`.

    Groups of pandas and polars are keyed by tuples, also where they are by one column; that is the name then.

    Raises:
        UsageError: there is none, or two have the same name.
    """
    if not isinstance(texts, Mapping):
        return {"text": texts}
    if not texts:
        raise UsageError(f"{what} names no source; use e.g. {{'web': df['text']}}")
    named = {str(_alone(name)): column for name, column in texts.items()}
    if len(named) < len(texts):
        names = ", ".join(map(repr, texts))
        raise UsageError(f"{what} names a source twice, as number and as text: {names}; rename one")
    return named


def _alone(name: Any) -> Any:
    return name[0] if isinstance(name, tuple) and len(name) == 1 else name


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


def _as_arrow(values: Any, where: str) -> "pa.Array | pa.ChunkedArray | None":
    """Return a column that a library holds as Arrow or can turn into it; None for other iterables."""
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _checked_type(values, where)
    if hasattr(values, "to_arrow"):  # polars
        return _checked_type(values.to_arrow(), where)
    if hasattr(values, "__arrow_array__"):  # arrays of pandas' own types
        return _checked_type(pa.array(values, from_pandas=True), where)
    array = getattr(values, "array", None)  # a Series of pandas, whose index is of no concern
    if array is not None and hasattr(array, "__arrow_array__"):
        return _checked_type(pa.array(array, from_pandas=True), where)
    if hasattr(values, "dtype") and hasattr(values, "ndim"):
        return _of_numpy(values, where)
    return None


def _unmasked(values: Any) -> Any:
    """Return a masked array of numpy with None where it is masked; its data holds a text there, too."""
    if not (hasattr(values, "mask") and hasattr(values, "filled")):
        return values
    import numpy as np  # noqa: PLC0415

    items = np.ma.getdata(values).astype(object)
    items[np.ma.getmaskarray(values)] = None
    return items


def _of_numpy(values: Any, where: str) -> "pa.Array | None":
    """Return the strings of a numpy array, or of a Series over one; None if its items must be looked at."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    try:
        items = np.asarray(values)
    except ValueError as error:  # groups of a DataFrame, say, which are of several lengths
        raise UsageError(f"{where} is of type {type(values).__name__}, and must be one column") from error
    if items.ndim != 1:
        raise UsageError(f"{where} has the shape {items.shape}, and must be one-dimensional")
    if items.dtype.kind == "U":
        try:
            return pa.array(items)
        except UnicodeError:  # a lone surrogate
            return None
    if items.dtype.kind in "OT" or not len(items):
        return pa.array([], pa.large_string()) if not len(items) else None
    raise UsageError(f"{where} has the dtype {items.dtype}, and must hold texts")


def _checked_type(found: Any, where: str) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    kind = found.type.value_type if pa.types.is_dictionary(found.type) else found.type
    texts = (
        *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_null),
    )
    if not any(is_kind(kind) for is_kind in texts):
        raise UsageError(f"{where} is an Arrow array of {found.type}, and must hold strings")
    return found


def _one(chunked: "pa.ChunkedArray") -> "pa.Array":
    """Return the rows of a slice as one array, without what stands before and behind them."""
    import pyarrow as pa  # noqa: PLC0415

    kind = chunked.type
    if pa.types.is_dictionary(kind):
        chunked = pa.chunked_array([chunk.dictionary_decode() for chunk in chunked.chunks], kind.value_type)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], chunked.type)


def _unchecked(items: list[Any], where: str, first: int, on_error: OnError) -> "pa.Array":
    """Return texts of which some are not UTF-8 or not texts; name the first such row if that is an error."""
    import pyarrow as pa  # noqa: PLC0415

    each = [_text(item, where, row, on_error) for row, item in enumerate(items, first)]
    return pa.array(each, pa.large_binary()).view(pa.large_string())


def _from_items(items: Iterator[Any], where: str, on_error: OnError) -> "Iterator[pa.Array]":
    import pyarrow as pa  # noqa: PLC0415

    first = 0
    while batch := list(islice(items, ROWS)):
        try:
            yield pa.array(batch, pa.large_string(), from_pandas=True)
        except (pa.ArrowInvalid, TypeError, UnicodeError):
            yield _unchecked(batch, where, first, on_error)
        first += len(batch)


def _text(item: Any, where: str, row: int, on_error: OnError) -> bytes | None:
    if _is_missing(item):
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


def _is_missing(item: Any) -> bool:
    """Whether an item is None, a NaN of any width, or what pandas has in its place."""
    if isinstance(item, Real):
        return math.isnan(item)
    return item is None or type(item).__name__ in _MISSING
