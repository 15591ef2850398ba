"""numba's cache of machine code, looked up by digests of what the code is made from, not by paths.

Law: equal digests mean equal machine code. They cover all sources in the folders of a kernel and of the
kernels compiled into it, the values of the constants that these take from any module, and the compiler's
versions.
"""

import enum
import functools
import hashlib
import os
import platform
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import config

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
    config = numba.config
    flags = [
        config.BOUNDSCHECK,
        int(config.OPT),
        config.DEBUGINFO_DEFAULT,
        config.CPU_NAME,
        config.CPU_FEATURES,
    ]
    versions = [numba.__version__, llvmlite.__version__, np.__version__, sys.version, platform.machine()]
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


_SETTINGS = ("CACHE_DIR", "CACHE_LOCATOR_CLASSES")


def keep_code(dispatcher: Any, folder: Path, constants: str) -> None:
    """Have numba keep a function's machine code in a folder.

    A numba whose cache is built otherwise than we know looks it up by the path of the source file.
    """
    with _numba_cache_in(folder):
        try:
            dispatcher._cache = _by_digest(dispatcher.py_func, folder, constants)
        except (ImportError, AttributeError, TypeError):
            dispatcher.enable_caching()


@contextmanager
def _numba_cache_in(folder: Path) -> Iterator[None]:
    """Have numba choose a folder, whatever its settings say, for what is decorated meanwhile."""
    before = {name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)}
    for name, value in zip(_SETTINGS, (str(folder), ""), strict=True):
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def _by_digest(function: Any, folder: Path, constants: str) -> Any:
    from numba.core.caching import CompileResultCacheImpl, FunctionCache

    class Locator(_Locator):
        home, digest = folder, constants

    class Files(CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = (Locator,)

    class Cache(FunctionCache):  # type: ignore[misc]
        _impl_class = Files

    return Cache(function)


class _Locator:
    """Where numba keeps a function's machine code, as its own locators say it."""

    home: Path
    digest: str

    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file  # for numba's warnings
        self._line = function.__code__.co_firstlineno
        self._path = str(self.home / function.__module__)

    @classmethod
    def from_function(cls, function: Any, file: str) -> "_Locator":
        """Say that this is the place for any function."""
        located = cls(function, file)
        located.ensure_cache_path()
        return located

    def ensure_cache_path(self) -> None:
        """Make the folder, and see that it can be written to."""
        os.makedirs(self._path, exist_ok=True)  # noqa: PTH103
        tempfile.TemporaryFile(dir=self._path).close()

    def get_cache_path(self) -> str:
        """One folder per module, because modules in several folders may have the same name."""
        return self._path

    def get_source_stamp(self) -> str:
        """What must be equal for machine code to be used."""
        return f"{self.home.name} {self.digest}"

    def get_disambiguator(self) -> str:
        """Keep functions of one name in one file apart, and those with other constants."""
        return f"{self._line}-{self.digest}"
