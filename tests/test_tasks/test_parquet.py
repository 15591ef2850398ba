"""Columns of numbers from Parquet, in any chunks and of any type."""

import numpy as np
import pyarrow as pa
import pytest

from tokmill.tasks.formats.files.parquet import numbers


@pytest.mark.parametrize(
    "arrow_type",
    [pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()],
)
def test_numbers_are_those_of_the_column(arrow_type: pa.DataType) -> None:
    values = pa.array([3, 1, 4, 1, 5], arrow_type)
    for chunks in ([values], [values[:2], values[2:]], [values[1:4]], [values[:0]], []):
        column = pa.chunked_array(chunks, arrow_type)
        found = numbers(column)
        assert found.dtype == np.dtype(column.to_numpy().dtype)
        assert found.tolist() == column.to_pylist()
