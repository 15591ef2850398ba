"""The array types that kernels take, as annotations, their machine signature, and memory for large arrays.

`...In` may be read only (Arrow buffers, memory maps, `bytes`); the others are written by the kernel.
All are contiguous. A NamedTuple of such fields bundles several arrays that belong together.
"""

import contextlib
import math
import mmap
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)

_LEAST_BYTES = 1 << 18


def zero_pages(shape: int | tuple[int, ...], kind: type[Number]) -> NDArray[Number]:
    """Return an array of zeros; its memory is allocated when it is written to, and returned when freed.

    `malloc` keeps freed memory, so that the peak of one step is added to that of the next.
    """
    shape = (shape,) if isinstance(shape, int) else shape
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size < _LEAST_BYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(shape, kind)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)  # random accesses need fewer page table look-ups
    return np.frombuffer(pages, kind).reshape(shape)


READ_ONLY = "read only"
TWO_DIMENSIONS = "two dimensions"

BytesIn: TypeAlias = Annotated[NDArray[np.uint8], READ_ONLY]
Float64In: TypeAlias = Annotated[NDArray[np.float64], READ_ONLY]
Int32In: TypeAlias = Annotated[NDArray[np.int32], READ_ONLY]
Int64In: TypeAlias = Annotated[NDArray[np.int64], READ_ONLY]
UInt16In: TypeAlias = Annotated[NDArray[np.uint16], READ_ONLY]
UInt32In: TypeAlias = Annotated[NDArray[np.uint32], READ_ONLY]
UInt64In: TypeAlias = Annotated[NDArray[np.uint64], READ_ONLY]

Bytes: TypeAlias = NDArray[np.uint8]
Float64: TypeAlias = NDArray[np.float64]
Int16: TypeAlias = NDArray[np.int16]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt16: TypeAlias = NDArray[np.uint16]
UInt32: TypeAlias = NDArray[np.uint32]
UInt64: TypeAlias = NDArray[np.uint64]

Int32Table: TypeAlias = Annotated[NDArray[np.int32], TWO_DIMENSIONS]
Int64Table: TypeAlias = Annotated[NDArray[np.int64], TWO_DIMENSIONS]
UInt64Table: TypeAlias = Annotated[NDArray[np.uint64], TWO_DIMENSIONS]


def signature_of(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Translate a kernel's annotations into numba's argument types."""
    hints = typing.get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    return tuple(_numba_type(hint, f"{function.__name__}({name})") for name, hint in hints.items())


def _numba_type(hint: Any, where: str) -> Any:
    import numba

    if hint in {int, float, bool}:
        return {int: numba.types.int64, float: numba.types.float64, bool: numba.types.boolean}[hint]
    if isinstance(hint, type) and issubclass(hint, tuple):
        fields = typing.get_type_hints(hint, include_extras=True)
        members = [_numba_type(field, f"{where}.{name}") for name, field in fields.items()]
        if len(set(members)) == 1:
            return numba.types.NamedUniTuple(members[0], len(members), hint)
        return numba.types.NamedTuple(members, hint)
    notes = getattr(hint, "__metadata__", ())
    array = typing.get_args(hint)[0] if notes else hint
    origin, arguments = typing.get_origin(array), typing.get_args(array)
    if origin is NDArray:  # an alias of its own since numpy 2.5; before, ndarray[shape, dtype[scalar]]
        element = arguments[0]
    elif origin is np.ndarray:
        element = typing.get_args(arguments[1])[0]
    else:
        raise TypeError(f"{where}: a kernel cannot take {hint!r}; use the types of tokenizer.jit.arrays")
    scalar = numba.from_dtype(np.dtype(element))
    ndim = 2 if TWO_DIMENSIONS in notes else 1
    return numba.types.Array(scalar, ndim, "C", readonly=READ_ONLY in notes)
