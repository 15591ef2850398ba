"""LLVM operations that numba does not offer, each beside its twin in plain Python.

All intrinsics live in this module. Little-endian machines only, as numba's wheels are.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import UInt32, UInt64

BYTES_AT_ONCE = 64


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


def _build_bytes_between() -> Any:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.core.extending import intrinsic

    byte, many = ir.IntType(8), ir.VectorType(ir.IntType(8), BYTES_AT_ONCE)

    def repeated(builder: Any, number: Any) -> Any:
        first = builder.insert_element(
            ir.Constant(many, ir.Undefined), builder.trunc(number, byte), _index(0)
        )
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), BYTES_AT_ONCE), [0] * BYTES_AT_ONCE)
        return builder.shuffle_vector(first, ir.Constant(many, ir.Undefined), everywhere)

    def _index(number: int) -> Any:
        return ir.Constant(ir.IntType(32), number)

    def bytes_between(typingctx: Any, data: Any, position: Any, low: Any, high: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = cgutils.gep_inbounds(builder, array.data, args[1])
            loaded = builder.load(builder.bitcast(place, many.as_pointer()))
            loaded.align = 1
            above = builder.sub(loaded, repeated(builder, args[2]))
            width = repeated(builder, builder.sub(args[3], args[2]))
            inside = builder.icmp_unsigned("<=", above, width)
            return builder.bitcast(inside, ir.IntType(BYTES_AT_ONCE))

        return types.uint64(data, types.intp, types.intp, types.intp), generate

    return intrinsic(bytes_between)


@kernel(build=_build_bytes_between)
def bytes_between(data: NDArray[np.uint8], position: int, low: int, high: int) -> np.uint64:
    """Return which of the bytes `data[position:position + 64]` are from `low` to `high`.

    The lowest bit stands for the first byte; all 64 must lie in `data`.
    """
    text = data[position : position + BYTES_AT_ONCE].tobytes()
    return np.uint64(sum(1 << i for i, byte in enumerate(text) if low <= byte <= high))


def _build_store_u64() -> Any:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.core.extending import intrinsic

    def store_u64(typingctx: Any, data: Any, position: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = cgutils.gep_inbounds(builder, array.data, args[1])
            stored = builder.store(args[2], builder.bitcast(place, ir.IntType(64).as_pointer()))
            stored.align = 4
            return context.get_dummy_value()

        return types.void(data, types.intp, types.uint64), generate

    return intrinsic(store_u64)


@kernel(build=_build_store_u64)
def store_u64(data: UInt32, position: int, word: np.uint64) -> None:
    """Write a number into `data[position:position + 2]`, the lower half first; both must lie in `data`."""
    data[position] = np.uint32(word & np.uint64(0xFFFFFFFF))
    data[position + 1] = np.uint32(word >> np.uint64(32))


def _build_prefetch() -> Any:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.core.extending import intrinsic

    def prefetch(typingctx: Any, data: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = cgutils.gep_inbounds(builder, array.data, args[1])
            byte = builder.bitcast(place, ir.IntType(8).as_pointer())
            word = ir.IntType(32)
            ask = builder.module.declare_intrinsic(
                "llvm.prefetch", [byte.type], ir.FunctionType(ir.VoidType(), [byte.type, word, word, word])
            )
            builder.call(ask, [byte, word(0), word(3), word(1)])  # to read, and keep it close
            return context.get_dummy_value()

        return types.void(data, types.intp), generate

    return intrinsic(prefetch)


@kernel(build=_build_prefetch)
def prefetch(data: UInt64, position: int) -> None:
    """Prefetch the cache line of a place that is read soon; this only affects time."""


def _build_count(operation: str) -> Callable[[], Any]:
    """Return a builder of the LLVM operation that counts zero bits from one end of a nonzero number."""

    def build() -> Any:
        from llvmlite import ir
        from numba.core import types
        from numba.core.extending import intrinsic

        def count(typingctx: Any, word: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return getattr(builder, operation)(args[0], ir.IntType(1)(1))

            return types.uint64(types.uint64), generate

        return intrinsic(count)

    return build


@kernel(build=_build_count("cttz"))
def count_trailing_zeros(word: np.uint64) -> np.uint64:
    """Return the index of the lowest set bit of a number other than zero."""
    return np.uint64((int(word) & -int(word)).bit_length() - 1)


@kernel(build=_build_count("ctlz"))
def count_leading_zeros(word: np.uint64) -> np.uint64:
    """Return the number of zero bits above the highest set bit of a number other than zero."""
    return np.uint64(64 - int(word).bit_length())
