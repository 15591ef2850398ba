"""The cache of machine code, and reports of compilations.

The folder is `$TOKMILL_KERNEL_CACHE`, else `$XDG_CACHE_HOME/tokmill/kernels`, else in `~/.cache`, and below
it a digest (`digests`). Reading machine code means running it, so a folder under the system's temporary one
must be ours alone. One process compiles a kernel, others wait for it. The first compilation is a warning in
the log, because a person may be waiting.

A wheel may carry machine code (`hatch_build.py`), trusted as the Python beside it: what the cache lacks, and
what needs no feature that the processor lacks, is read from there.
"""

import contextlib
import functools
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

CARRIED = Path(__file__).parent / "compiled"
"""Where a wheel has machine code, in folders as the cache has them."""


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


_SETTINGS = ("CACHE_DIR", "CACHE_LOCATOR_CLASSES")
_V3 = "+cx16,+sahf,+crc32,+popcnt,+sse4.2,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"


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

        def _load_overload(self, signature: Any, context: Any) -> Any:
            found = super()._load_overload(signature, context)
            return _carried(self, signature, context) if found is None else found

    return Cache(function)


def portable_target() -> tuple[str, str]:
    """Return what a wheel's code is compiled for: LLVM's name of the processor, and the features needed."""
    if platform.machine() in {"x86_64", "AMD64"}:
        return "x86-64-v3", _V3
    return "generic", ""


def _carried(cache: Any, signature: Any, context: Any) -> Any:
    """Read a kernel from the wheel; None if it has none that is valid here."""
    from numba.core.caching import IndexDataCacheFile

    triple, _, usable = context.codegen().magic_tuple()
    name, needed = portable_target()
    if not set(needed.split(",")) <= {"", *usable.split(",")}:
        return None
    place, kept = cache._impl.locator, cache._impl.filename_base
    file = IndexDataCacheFile(str(CARRIED / place.below), kept, place.get_source_stamp())
    target = SimpleNamespace(magic_tuple=lambda: (triple, name, needed))
    with contextlib.suppress(Exception):  # what is damaged may raise anything, and is compiled
        found = file.load(cache._index_key(signature, target))
        return None if found is None else cache._impl.rebuild(context, found)


class _Locator:
    """Where numba keeps a function's machine code, as its own locators say it."""

    home: Path
    digest: str

    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file  # for numba's warnings
        self._line = function.__code__.co_firstlineno
        self.below = Path(self.home.name, function.__module__)
        self._path = str(self.home.parent / self.below)

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
