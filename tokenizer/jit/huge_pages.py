"""Large arrays whose memory comes directly from the system, and is returned to it as soon as they are freed.

`malloc` keeps freed memory, so that the peak of one step is added to that of the next.
"""

import contextlib
import math
import mmap
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)

_LEAST_BYTES = 1 << 18


def zero_pages(shape: int | tuple[int, ...], kind: type[Number]) -> NDArray[Number]:
    """Return an array of zeros; memory is allocated only when it is written to."""
    shape = (shape,) if isinstance(shape, int) else shape
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size < _LEAST_BYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(shape, kind)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)  # random accesses need fewer page table look-ups
    return np.frombuffer(pages, kind).reshape(shape)
