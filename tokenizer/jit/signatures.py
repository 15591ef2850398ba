"""From a kernel's annotations to numba's types."""

import typing
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit import arrays


def signature_of(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Translate a kernel's annotations into numba's argument types.

    Raises:
        TypeError: an annotation that is no type of `arrays`.
    """
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
        raise TypeError(f"{where}: a kernel cannot take {hint!r}; use the types of tokenizer.kernels.arrays")
    scalar = numba.from_dtype(np.dtype(element))
    ndim = 2 if arrays.TWO_DIMENSIONS in notes else 1
    return numba.types.Array(scalar, ndim, "C", readonly=arrays.READ_ONLY in notes)
