"""LLVM within reach: the few operations that numba has no word for, each beside its plain twin.

All intrinsics live in this module. Little-endian machines only, as numba's wheels are.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenizer.kernels.jit import kernel


def _build_load_u64() -> Any:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.core.extending import intrinsic

    def load_u64(typingctx: Any, data: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = cgutils.gep_inbounds(builder, array.data, args[1])
            word = builder.bitcast(place, ir.IntType(64).as_pointer())
            loaded = builder.load(word)
            loaded.align = 1
            return loaded

        return types.uint64(data, types.intp), generate

    return intrinsic(load_u64)


@kernel(build=_build_load_u64)
def load_u64(data: NDArray[np.uint8], position: int) -> np.uint64:
    """Read `data[position:position + 8]` as a little-endian number; all eight bytes must lie in `data`."""
    return np.uint64(int.from_bytes(data[position : position + 8].tobytes(), "little"))
