"""Digests of what machine code is made from.

Law: equal digests mean equal machine code on processors of one name and features, which numba compares. They
cover all sources in the folders of a kernel and of the kernels compiled into it, the values of the constants
that these take from any module, the versions of the compiler, and Python's binary interface.
"""

import enum
import functools
import hashlib
import platform
import types
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


def digest_of_sources(functions: Iterable[Callable[..., Any]]) -> str:
    """Digest all sources in the folders of these functions and in this one, and what compiles them."""
    homes = {
        (function.__module__.rpartition(".")[0], Path(function.__code__.co_filename).parent)
        for function in functions
    }
    return _digest_of_folders(frozenset(homes | {(__package__, Path(__file__).parent)}))


def digest_of_constants(functions: Iterable[Callable[..., Any]]) -> str:
    """Digest the values that these functions take from their modules and that become part of machine code."""
    found = sorted(line for function in functions for line in _constants(function))
    return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()


@functools.cache
def _digest_of_folders(homes: frozenset[tuple[str, Path]]) -> str:
    sources = [
        (package, path.name, path.read_bytes()) for package, home in homes for path in home.glob("*.py")
    ]
    digest = hashlib.blake2b(digest_size=10)
    for package, name, text in sorted(sources):
        digest.update(repr((package, name, len(text))).encode() + text)
    import llvmlite
    import numba

    config = numba.config
    flags = [config.BOUNDSCHECK, int(config.OPT), config.DEBUGINFO_DEFAULT]
    versions = [numba.__version__, llvmlite.__version__, np.__version__, EXTENSION_SUFFIXES[0]]
    versions.append(platform.machine())
    digest.update(repr([versions, flags]).encode())
    return digest.hexdigest()


@functools.cache
def _constants(function: Callable[..., Any]) -> tuple[str, ...]:
    """A line for each global that a function names: where it is named, and its value."""
    where = f"{function.__module__}.{function.__qualname__}"
    return tuple(f"{where}: {name} = {_form(value, f'{where}: {name}')}" for name, value in _named(function))


def _named(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The globals that a function names, and what it may take from modules among them."""
    names, seen = function.__code__.co_names, function.__globals__
    for name in names:
        value = seen.get(name)
        if isinstance(value, types.ModuleType):
            inside = vars(value)
            yield from ((f"{name}.{part}", inside[part]) for part in names if part in inside)
        elif name in seen:
            yield name, value


def _form(value: Any, where: str) -> str:
    """Write a value down so that equal forms mean equal machine code."""
    if isinstance(value, enum.Enum):
        return f"{_form(type(value), where)}({_form(value.value, where)})"
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__}({value!r})"
    if isinstance(value, np.ndarray):
        return f"array({value.dtype.str}, {value.shape}, {value.tobytes().hex()})"
    if isinstance(value, tuple):
        return f"{_form(type(value), where)}({', '.join(_form(item, where) for item in value)})"
    named = getattr(value, "py_func", value)  # a kernel: its source is covered
    if isinstance(named, types.ModuleType):
        return f"module {named.__name__}"
    if not hasattr(named, "__qualname__") and not isinstance(named, np.ufunc):
        raise TypeError(f"{where}: a kernel cannot use a global of type {type(value).__name__}; use a number")
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", named.__name__)
    return f"{module}.{name}{getattr(named, '_fields', '')}"
