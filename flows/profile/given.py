"""Values that a profile is given in Python, as a TOML file would have them.

Paths become texts; numbers and arrays of numpy, Series, and tuples become numbers and lists. So the digests
and records of a run do not depend on which of them was written, and relative paths in any of them are found.
"""

import os
from collections.abc import Mapping, Set
from typing import Any

from tokmill.flows.errors import ProfileError


def as_toml(given: Any, where: str = "") -> Any:
    """Return a value, with all in it, as `tomllib` returns it; what has no such form is left as it is.

    Args:
        given: the value.
        where: its dotted key, for errors.

    Raises:
        ProfileError: it is a set, whose order would differ from one process to the next, or an integer of
            more than 64 bits.
    """
    if isinstance(given, Mapping):
        return {key: as_toml(value, f"{where}.{key}" if where else str(key)) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [as_toml(value, where) for value in given]
    if isinstance(given, Set):
        raise ProfileError(f"{where} is a set, which has no order; write a list")
    if isinstance(given, int) and not -(1 << 63) <= given < 1 << 64:
        raise ProfileError(f"{where}: the number has {given.bit_length()} bits; use one of at most 64")
    if isinstance(given, os.PathLike):
        return os.fspath(given)
    to_list = getattr(given, "tolist", None)  # of numpy's scalars and arrays, Arrow's arrays, pandas' Series
    return given if to_list is None else to_list()
