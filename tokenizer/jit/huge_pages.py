"""Large arrays whose memory comes straight from the system, and goes back to it as soon as they are let go.

`malloc` keeps what is freed for the next time, so that a peak of one step is added to that of the next.
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
    """Return an array of zeros; memory is taken as it is written to, not before."""
    shape = (shape,) if isinstance(shape, int) else shape
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size < _LEAST_BYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(shape, kind)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)  # what is read here and there is found sooner
    return np.frombuffer(pages, kind).reshape(shape)
