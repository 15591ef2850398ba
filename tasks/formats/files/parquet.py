"""Read a whole Parquet file."""

import os

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet(path: "os.PathLike[str]") -> pa.Table:
    """Return all rows and columns of the file.

    pyarrow's own function for this imports its datasets, and with them pandas where that is installed: 0.15 s
    of every command that reads a table.

    Raises:
        OSError: it cannot be read.
        pyarrow.ArrowException: it is no Parquet file, or a broken one.
    """
    with pq.ParquetFile(os.fspath(path)) as file:
        return file.read()
