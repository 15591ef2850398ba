"""Write one-dimensional `.npy` files by appending arrays, without knowing the final length.

A `.npy` header has the shape, which a streaming writer does not know yet. numpy pads the header so that the
length of the first axis can grow in place. So the header is written for length 0, the values are appended,
and the header is overwritten at the end. The file equals that of `numpy.save` for the whole array, byte for
byte, and only one appended array is in memory at a time.
"""

import io
import math
import re
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.faults import broken

_HEADER = re.compile(
    r"\{'descr': '(?P<descr>[<>|=]?\w+)', 'fortran_order': False, "
    r"'shape': \((?P<shape>[\d, ]*)\), \}"
)


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """The header that numpy writes for a C-ordered vector of `length` values."""
    buffer = io.BytesIO()
    description = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    npy_format.write_array_header_1_0(buffer, description)
    return buffer.getvalue()


class NpyAppender:
    """Writes a one-dimensional `.npy` file array by array; a context manager.

    Attributes:
        length: values written so far.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any] | type[np.generic]) -> None:
        self._dtype = np.dtype(dtype)
        self._file: BinaryIO = path.open("wb")
        self._path = path
        self._header_bytes = self._file.write(_header(self._dtype, 0))
        self.length = 0

    def append(self, values: NDArray[Any]) -> None:
        """Append `values`, shape (n,), whose dtype must convert to the file's without loss."""
        array = np.ascontiguousarray(values.astype(self._dtype, casting="safe", copy=False))
        self._file.write(array.data)
        self.length += array.size

    def close(self) -> None:
        """Write the final header and close the file."""
        header = _header(self._dtype, self.length)
        if len(header) != self._header_bytes:  # numpy reserves 21 digits
            raise StoreError(f"{self._path}: {self.length} values do not fit the header's room; write fewer")
        self._file.seek(0)
        self._file.write(header)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


def open_vector(path: Path, *dtypes: type[np.generic]) -> NDArray[Any]:
    """The one-dimensional array in the `.npy` file `path`, memory-mapped and read-only.

    Args:
        path: the file.
        dtypes: allowed dtypes, little-endian; any numeric dtype if none is given.
    """
    found = open_array(path, 1)
    if dtypes and found.dtype not in [np.dtype(wanted).newbyteorder("<") for wanted in dtypes]:
        names = " or ".join(np.dtype(wanted).name for wanted in dtypes)
        raise StoreError(
            f"{path}: holds values of {found.dtype}, which must be {names}; verify the artifact it belongs to"
        )
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
    if len(shape) != num_axes:
        axes = "one axis" if num_axes == 1 else f"{num_axes} axes"
        raise ValueError(f"shape {shape} must have {axes}")
    if dtype.kind not in "uifb":
        raise ValueError(f"values of {dtype} are not numbers")
    expected = math.prod(shape) * dtype.itemsize
    if num_bytes != expected:
        raise ValueError(f"{num_bytes} bytes of values must be {expected}, for shape {shape} of {dtype}")


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
