"""Arrays of numbers in files of artifacts: one-dimensional `.npy` files that grow, and columns of Parquet.

numpy pads the header of a `.npy` file so that the first axis can grow in place: it is written for length 0,
and overwritten after the values. The file equals that of `numpy.save` for the whole array.
"""

import dataclasses
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import untrue
from tokmill.tasks.formats.files.manifests import readable

_HEADER = re.compile(
    r"\{'descr': '(?P<descr>[<>|=]?\w+)', 'fortran_order': False, 'shape': \((?P<shape>[\d, ]*)\), \}"
)
# The types of Arrow that numpy has under other names.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


class NpyAppender:
    """Writes a one-dimensional `.npy` file array by array; a context manager.

    Attributes:
        length: values written so far.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any] | type[np.generic]) -> None:
        self._dtype = np.dtype(dtype)
        self._path = path
        self.length = 0

    def __enter__(self) -> Self:
        self._file: BinaryIO = self._path.open("wb")
        self._header_bytes = self._file.write(self._header())
        return self

    def _header(self) -> bytes:
        buffer, descr = io.BytesIO(), npy_format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.length,)}
        npy_format.write_array_header_1_0(buffer, header)
        return buffer.getvalue()

    def append(self, values: NDArray[Any]) -> None:
        """Append `values`, shape (n,), whose dtype must convert to the file's without loss."""
        array = np.ascontiguousarray(values.astype(self._dtype, casting="safe", copy=False))
        self._file.write(array.data)
        self.length += array.size

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            header = self._header()
            if kind is None and len(header) != self._header_bytes:  # numpy reserves 21 digits
                raise StoreError(f"{self._path}: {self.length} values do not fit the header; write fewer")
            if kind is None:
                self._file.seek(0)
                self._file.write(header)


def open_vector(path: Path, *dtypes: type[np.generic], length: int | None = None) -> NDArray[Any]:
    """The one-dimensional array in the `.npy` file `path`, memory-mapped and read-only.

    Args:
        path: the file.
        dtypes: allowed dtypes, little-endian; any numeric dtype if none is given.
        length: required number of values, as another file says.
    """
    found = open_array(path, 1)
    if dtypes and found.dtype not in [np.dtype(wanted).newbyteorder("<") for wanted in dtypes]:
        names = " or ".join(np.dtype(wanted).name for wanted in dtypes)
        raise untrue(path, f"holds values of {found.dtype}, which must be {names}")
    if length not in (None, len(found)):
        raise untrue(path, f"holds {len(found)} values, which must be {length}")
    return found


def open_array(path: Path, num_axes: int) -> NDArray[Any]:
    """The array of numbers in the `.npy` file `path`, in C order, memory-mapped and read-only."""
    try:
        dtype, shape, offset = _read_header(path)
        _check_header(dtype, shape, num_axes, path.stat().st_size - offset)
        if not math.prod(shape):  # an empty array cannot be mapped
            return np.empty(shape, dtype=dtype)
        return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)
    except (OSError, ValueError, EOFError, TypeError) as error:
        raise broken(path, "not a readable .npy file", error) from error


def _check_header(dtype: np.dtype[Any], shape: tuple[int, ...], num_axes: int, num_bytes: int) -> None:
    expected = math.prod(shape) * dtype.itemsize
    if len(shape) != num_axes or dtype.kind not in "uifb" or num_bytes != expected:
        raise ValueError(
            f"{num_bytes} bytes of shape {shape} and {dtype} must be {expected}, numbers, of {num_axes} axes"
        )


def _read_header(path: Path) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """The dtype, the shape, and the position of the values.

    numpy parses the header as Python source. If several threads do so at once, CPython 3.11 fails now and
    then, because all threads share its counter of the depth of syntax trees.
    """
    with path.open("rb") as file:
        major, _ = npy_format.read_magic(file)
        length = int.from_bytes(file.read(2 if major == 1 else 4), "little")
        header = file.read(length).decode("latin-1")
        found = _HEADER.fullmatch(header.strip())
        if len(header) < length or found is None:
            raise ValueError(f"its header {header[:80]!r} is not of numpy's form for numbers")
        shape = tuple(int(size) for size in found["shape"].split(",") if size.strip())
        return np.dtype(found["descr"]), shape, file.tell()


def read_parquet(path: "os.PathLike[str]") -> pa.Table:
    """Return all rows and columns of the file.

    pyarrow's own function for this imports its datasets, and with them pandas where that is installed: 0.15 s
    of every command that reads a table.
    """
    with pq.ParquetFile(os.fspath(path)) as file:
        return file.read()


def write_catalog(out: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write the tables that an artifact adds to the catalog, by name.

    Without dictionaries, which take half of the time and leave zstd less to find.
    """
    (out / "catalog").mkdir()
    for name, table in tables.items():
        file = out / "catalog" / f"{name}.parquet"
        pq.write_table(table, file, compression="zstd", use_dictionary=False)


@contextmanager
def write_row_groups(
    file: Path, schema: pa.Schema, num_rows: int, **how: Any
) -> Iterator[Callable[[pa.Table], None]]:
    """Write rows in groups of `num_rows`; the bytes do not depend on the tables that they come in."""
    held: list[pa.Table] = []
    with pq.ParquetWriter(file, schema, compression="zstd", **how) as writer:

        def append(table: pa.Table, least: int = num_rows) -> None:
            held.append(table)
            if sum(map(len, held)) >= least:
                whole = pa.concat_tables(held)
                stop = len(whole) - len(whole) % least
                for start in range(0, stop, num_rows):
                    writer.write_table(whole.slice(start, min(num_rows, stop - start)).combine_chunks())
                held[:] = [whole.slice(stop)]

        yield append
        append(schema.empty_table(), 1)


def read_columns(file: Path, schema: pa.Schema, what: str) -> dict[str, NDArray[Any]]:
    """Return the columns of numbers that a file, `what` in messages, must have; see `columns_of`."""
    with readable(file, what):
        table = read_parquet(file)
    return columns_of(file, table, schema)


def columns_of(file: Path, rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> dict[str, NDArray[Any]]:
    """Return the columns of a schema of numbers, after checking that rows of the file have them."""
    columns: dict[str, NDArray[Any]] = {}
    for field in schema:
        named = [rows.column(place) for place in rows.schema.get_all_field_indices(field.name)]
        if len(named) != 1 or named[0].type != field.type or named[0].null_count:
            said = ", ".join(str(column.type) for column in named) or "missing"
            raise untrue(file, f"column {field.name} is {said}, and must be {field.type} without nulls")
        columns[field.name] = numbers(named[0])
    return columns


def numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of numbers without nulls as an array of their type, which may be read-only.

    pyarrow's `to_numpy` imports pandas where that is installed (0.3 s), and the `to_pandas_dtype` of
    version 18 fails without it.
    """
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    arrow_type = str(column.type)
    values = np.frombuffer(whole.buffers()[1] or b"", dtype=_FLOATS.get(arrow_type, arrow_type))
    return values[whole.offset : whole.offset + len(whole)]


def schema_of(**columns: str) -> pa.Schema:
    """Return a schema of columns without nulls, with these Arrow types."""
    return pa.schema(
        [pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in columns.items()]
    )


class Columns:
    """Rows of a table: a dataclass whose fields are arrays of numbers, all of the same length."""

    def __len__(self) -> int:
        return len(next(iter(self.columns().values())))

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns by name, in order."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def rows(self, start: int, stop: int) -> Self:
        """Rows [start, stop), as views."""
        return type(self)(*(values[start:stop] for values in self.columns().values()))

    @classmethod
    def schema(cls) -> pa.Schema:
        """The columns in Arrow; the types are those of the annotations."""
        hints = get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        return schema_of(**{name: _scalar(hints[name]).__name__ for name in names})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, in order."""
        empty = ((field.name, np.empty(0, str(field.type))) for field in cls.schema())
        return cls(
            *(np.concatenate([none, *(getattr(part, name) for part in parts)]) for name, none in empty)
        )


def _scalar(hint: Any) -> Any:
    """The innermost argument: since numpy 2.5, `NDArray[T]` is an alias that hides the dtype around T."""
    return _scalar(get_args(hint)[-1]) if get_args(hint) else hint
