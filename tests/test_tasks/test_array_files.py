"""Growing `.npy` files, equal to numpy.save however they were cut; numbers from Parquet in any chunks."""

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.arrays import NpyAppender, numbers, open_vector


@given(
    parts=st.lists(st.lists(st.integers(0, 65_535), max_size=20), max_size=6),
    dtype=st.sampled_from(["uint16", "uint32", "int64", "uint64"]),
)
def test_appending_writes_what_numpy_saves(tmp_path_factory, parts, dtype):
    folder = tmp_path_factory.mktemp("npy")
    with NpyAppender(folder / "grown.npy", np.dtype(dtype)) as file:
        for part in parts:
            file.append(np.array(part, dtype=dtype))
    whole = np.array([value for part in parts for value in part], dtype=dtype)
    np.save(folder / "saved.npy", whole)
    assert (folder / "grown.npy").read_bytes() == (folder / "saved.npy").read_bytes()
    assert file.length == len(whole)
    assert open_vector(folder / "grown.npy").tolist() == whole.tolist()


def test_narrower_values_are_widened_and_wider_ones_refused(tmp_path):
    with NpyAppender(tmp_path / "a.npy", np.uint32) as file:
        file.append(np.array([1, 2], dtype=np.uint16))
        with pytest.raises(TypeError):
            file.append(np.array([1 << 40], dtype=np.int64))
    assert open_vector(tmp_path / "a.npy", length=2).tolist() == [1, 2]


def saved(values):
    sink = io.BytesIO()
    np.save(sink, values)
    return sink.getvalue()


OTHERS = [b"", b"not an array", b"\x93NUMPY\x01\x00", saved(np.arange(100))[:-8], saved(np.zeros((2, 2)))]


@pytest.mark.parametrize("content", OTHERS, ids=["empty", "other", "header", "cut", "two axes"])
def test_a_broken_file_is_named(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(StoreError, match=r"a\.npy"):
        open_vector(tmp_path / "a.npy")


@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_what_numpy_saves_is_opened(tmp_path, length, version):
    values = np.arange(length, dtype=">u4")
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, values, version=version)
    opened = open_vector(tmp_path / "a.npy")
    assert opened.dtype == values.dtype
    assert opened.tolist() == values.tolist()
    assert not length or not opened.flags.writeable


def test_many_threads_may_open_files_at_once(tmp_path):
    """With numpy's own reading of the header CPython 3.11 says "recursion depth mismatch" now and then."""
    np.save(tmp_path / "a.npy", np.arange(5))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: open_vector(tmp_path / "a.npy").sum(), range(500)))
    assert found == [10] * 500


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
