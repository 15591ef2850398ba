"""Read a whole Parquet file, and its columns of numbers as arrays, without pandas."""

import os
from typing import Any

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

    Raises:
        OSError: it cannot be read.
        pyarrow.ArrowException: it is not a Parquet file, or a broken one.
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
