"""Parquet files of artifacts: whole tables, and rows as numpy arrays, without pandas."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Self, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
"""The types of Arrow that numpy has under other names."""


def read_parquet(path: "os.PathLike[str]") -> pa.Table:
    """Return all rows and columns of the file.

    pyarrow's own function for this imports its datasets, and with them pandas where that is installed: 0.15 s
    of every command that reads a table.
    """
    with pq.ParquetFile(os.fspath(path)) as file:
        return file.read()


def numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of numbers without nulls as an array of their type, which may be read-only.

    pyarrow's `to_numpy` imports pandas where that is installed (0.3 s), and the `to_pandas_dtype` of
    version 18 fails without it.
    """
    whole, arrow_type = column.combine_chunks(), str(column.type)
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
        return len(getattr(self, dataclasses.fields(self)[0].name))  # type: ignore[arg-type]

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
        return schema_of(**{name: hints[name].__args__[1].__args__[0].__name__ for name in names})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, in order."""
        return cls(
            *(
                np.concatenate([np.empty(0, str(field.type)), *(getattr(part, field.name) for part in parts)])
                for field in cls.schema()
            )
        )
