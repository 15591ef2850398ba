"""The array types that kernels take, as annotations; `jit` reads a kernel's machine signature from them.

`...In` may be read only (Arrow buffers, memory maps, `bytes`); the others are written by the kernel.
All are contiguous. A NamedTuple of such fields may stand for several arrays that belong together.
"""

from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

READ_ONLY = "read only"
TWO_DIMENSIONS = "two dimensions"

BytesIn: TypeAlias = Annotated[NDArray[np.uint8], READ_ONLY]
Int32In: TypeAlias = Annotated[NDArray[np.int32], READ_ONLY]
Int64In: TypeAlias = Annotated[NDArray[np.int64], READ_ONLY]
UInt16In: TypeAlias = Annotated[NDArray[np.uint16], READ_ONLY]
UInt32In: TypeAlias = Annotated[NDArray[np.uint32], READ_ONLY]
UInt64In: TypeAlias = Annotated[NDArray[np.uint64], READ_ONLY]

Bytes: TypeAlias = NDArray[np.uint8]
Int16: TypeAlias = NDArray[np.int16]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt16: TypeAlias = NDArray[np.uint16]
UInt32: TypeAlias = NDArray[np.uint32]
UInt64: TypeAlias = NDArray[np.uint64]

Int32Table: TypeAlias = Annotated[NDArray[np.int32], TWO_DIMENSIONS]
Int64Table: TypeAlias = Annotated[NDArray[np.int64], TWO_DIMENSIONS]
UInt32Table: TypeAlias = Annotated[NDArray[np.uint32], TWO_DIMENSIONS]
UInt64Table: TypeAlias = Annotated[NDArray[np.uint64], TWO_DIMENSIONS]
