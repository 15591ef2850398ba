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


def _of_element(result: str, others: tuple[str, ...], generate: Callable[..., Any]) -> Callable[[], Any]:
    """Return what builds an operation on an element of an array.

    Args:
        result: numba's type of the result.
        others: those of the arguments after the array and the index.
        generate: takes LLVM's builder, the address of the element and the other arguments.
    """

    def build() -> Any:
        from numba.core import cgutils, types
        from numba.core.extending import intrinsic

        def generated(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            address = cgutils.gep_inbounds(builder, array.data, args[1])
            made = generate(builder, address, *args[2:])
            return context.get_dummy_value() if result == "void" else made

        def typed(data: Any) -> Any:
            kinds = (getattr(types, name) for name in others)
            return getattr(types, result)(data, types.intp, *kinds), generated

        def alone(typingctx: Any, data: Any, position: Any) -> Any:
            return typed(data)

        def with_one(typingctx: Any, data: Any, position: Any, value: Any) -> Any:
            return typed(data)

        def with_two(typingctx: Any, data: Any, position: Any, low: Any, high: Any) -> Any:
            return typed(data)

        return intrinsic((alone, with_one, with_two)[len(others)])

    return build


def _load(builder: Any, address: Any, *_: Any) -> Any:
    from llvmlite import ir

    loaded = builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()))
    loaded.align = 1
    return loaded


@kernel(build=_of_element("uint64", (), _load))
def load_u64(data: NDArray[np.uint8], position: int) -> np.uint64:
    """Read `data[position:position + 8]` as a little-endian number; all eight bytes must lie in `data`."""
    return np.uint64(int.from_bytes(data[position : position + 8].tobytes(), "little"))


def _compare(builder: Any, address: Any, low: Any, high: Any) -> Any:
    from llvmlite import ir

    byte, many, word = ir.IntType(8), ir.VectorType(ir.IntType(8), BYTES_AT_ONCE), ir.IntType(32)

    def repeated(number: Any) -> Any:
        none = ir.Constant(many, ir.Undefined)
        first = builder.insert_element(none, builder.trunc(number, byte), word(0))
        return builder.shuffle_vector(first, none, ir.Constant(ir.VectorType(word, BYTES_AT_ONCE), [0] * 64))

    loaded = builder.load(builder.bitcast(address, many.as_pointer()))
    loaded.align = 1
    above = builder.sub(loaded, repeated(low))
    inside = builder.icmp_unsigned("<=", above, repeated(builder.sub(high, low)))
    return builder.bitcast(inside, ir.IntType(BYTES_AT_ONCE))


@kernel(build=_of_element("uint64", ("intp", "intp"), _compare))
def bytes_between(data: NDArray[np.uint8], position: int, low: int, high: int) -> np.uint64:
    """Return which of the bytes `data[position:position + 64]` are from `low` to `high`.

    The lowest bit stands for the first byte; all 64 must lie in `data`.
    """
    text = data[position : position + BYTES_AT_ONCE].tobytes()
    return np.uint64(sum(1 << i for i, byte in enumerate(text) if low <= byte <= high))


def _store(builder: Any, address: Any, word: Any) -> None:
    from llvmlite import ir

    stored = builder.store(word, builder.bitcast(address, ir.IntType(64).as_pointer()))
    stored.align = 4


@kernel(build=_of_element("void", ("uint64",), _store))
def store_u64(data: UInt32, position: int, word: np.uint64) -> None:
    """Write a number into `data[position:position + 2]`, the lower half first; both must lie in `data`."""
    data[position] = np.uint32(word & np.uint64(0xFFFFFFFF))
    data[position + 1] = np.uint32(word >> np.uint64(32))


def _prefetch(builder: Any, address: Any) -> None:
    from llvmlite import ir

    byte, word = builder.bitcast(address, ir.IntType(8).as_pointer()), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte.type, word, word, word])
    ask = builder.module.declare_intrinsic("llvm.prefetch", [byte.type], kind)
    builder.call(ask, [byte, word(0), word(3), word(1)])  # to read, and keep it close


@kernel(build=_of_element("void", (), _prefetch))
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
