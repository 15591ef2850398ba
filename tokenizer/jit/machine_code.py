"""The cache of machine code, looked up by digests of what it is made from, and reports of compilations.

Law: equal digests mean equal machine code. They cover all sources in the folders of a kernel and of the
kernels compiled into it, the values of the constants that these take from any module, and the versions of the
compiler.

The folder is `$TOKMILL_KERNEL_CACHE`, else `$XDG_CACHE_HOME/tokmill/kernels`, else in `~/.cache`, and below
it a digest. Reading machine code means running it, so a folder under the system's temporary one must be ours
alone. One process compiles a kernel, others wait for it. The first compilation is a warning in the log,
because a person may be waiting.
"""

import contextlib
import enum
import functools
import hashlib
import logging
import os
import platform
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compilation:
    """The compilation, or the reading, of one kernel.

    Attributes:
        kernel: module and name.
        cached: whether the machine code was read instead of compiled.
        seconds: time that it took; None while it is being compiled.
    """

    kernel: str
    cached: bool
    seconds: float | None


Report = Callable[[Compilation], None]

_reports: list[Report] = []
_begun: list[str] = []
_at_work: list[str] = []
"""The kernels whose compilation began in this process, and of them those that are not done yet."""


@contextmanager
def announcing(name: str, dispatcher: Any, folder: Path, prepare: Callable[[], None]) -> Iterator[None]:
    """Report, and prepare, when numba begins to compile: only if the cache does not have the kernel."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, started: Any) -> None:
            if started.data["dispatcher"] is dispatcher:
                _announce_once(folder.parent)
                tell(Compilation(name, cached=False, seconds=None))
                prepare()

        def on_end(self, ended: Any) -> None:
            """Do nothing: the compiling code reports the end, with the time."""

    try:
        with event.install_listener("numba:compile", Listener()):
            yield
    finally:
        if name in _at_work:
            _at_work.remove(name)


def compiling() -> tuple[str, int] | None:
    """Return the name of the kernel that is compiled now, and how many have been begun; None if none is."""
    last = _at_work[-1:]  # another thread compiles
    return (last[0].rpartition(".")[2], len(_begun)) if last else None


@functools.cache
def _announce_once(folder: Path) -> None:
    if not _reports:
        logger.warning("compiling kernels, only once, for up to a minute (kept in %s)", folder)


@contextmanager
def reporting(report: Report | None) -> Iterator[None]:
    """Report to a callback within the block."""
    if report is not None:
        _reports.append(report)
    try:
        yield
    finally:
        if report is not None:
            _reports.remove(report)


def tell(done: Compilation) -> None:
    """Log a compilation, and report it to the callbacks."""
    if done.seconds is None:
        _begun.append(done.kernel)
        _at_work.append(done.kernel)
        logger.info("compiling %s", done.kernel)
    else:
        logger.info("%s %s in %.2f s", "read" if done.cached else "compiled", done.kernel, done.seconds)
    for report in _reports:
        report(done)


@functools.cache
def cache_folder(digest: str) -> Path:
    """Return the folder for machine code of the sources with this digest; it exists and is writable."""
    for root in _roots():
        folder = root / digest
        if _is_writable(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="tokmill-kernels-"))


def kernel_cache() -> tuple[Path, bool]:
    """Return the folder below which machine code is kept, and whether it outlives this process."""
    for root in _roots():
        if _is_writable(root):
            return root, True
    return Path(tempfile.gettempdir()), False


@contextlib.contextmanager
def alone(folder: Path, kernel: str) -> Iterator[None]:
    """Keep other processes from compiling the same kernel within the block, if files can be locked.

    If they cannot, processes may do the same work at the same time, which is harmless. The lock of a process
    that is killed ends with it.
    """
    with contextlib.ExitStack() as held:
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                fcntl.flock(held.enter_context((folder / f"{kernel}.lock").open("ab")), fcntl.LOCK_EX)
        yield


def forget(folder: Path, kernel: str) -> None:
    """Remove the machine code of a kernel, as far as possible."""
    for file in folder.rglob(f"*.{kernel}-*"):
        with contextlib.suppress(OSError):
            file.unlink()


def _roots() -> Iterator[Path]:
    override = os.environ.get("TOKMILL_KERNEL_CACHE")
    if override:
        yield Path(override).expanduser()
    else:
        yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tokmill" / "kernels"
    private = Path(tempfile.gettempdir()) / f"tokmill-kernels-{_user_number()}"
    if _is_private(private):
        yield private


def _user_number() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _is_private(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return status.st_uid == _user_number() and not status.st_mode & 0o077


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
    from numba.core import config

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
