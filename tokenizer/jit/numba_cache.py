"""numba's cache of machine code, looked up by our digests.

numba looks machine code up by its source file's path, and in some versions by its time of change, so that
every checkout and every environment would compile all kernels. Our folders are named after the sources.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core import config

_SETTINGS = ("CACHE_DIR", "CACHE_LOCATOR_CLASSES")


def keep_code(dispatcher: Any, folder: Path, constants: str) -> None:
    """Have numba keep a function's machine code in a folder.

    Args:
        dispatcher: what `numba.njit` made of the function, without a cache.
        folder: named after all sources.
        constants: digest of what the function takes from other modules.

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
