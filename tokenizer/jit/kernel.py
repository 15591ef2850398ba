"""Kernels: plain Python functions over flat arrays that numba turns into machine code on first use.

Laws: a kernel's machine signature is its annotations (`arrays`), and an argument of another type is an error
instead of a second compilation. With `NUMBA_DISABLE_JIT=1` it runs as the Python function that it is, where
integers wrap, too. It allocates nothing, and reports if it is given too little memory. Its code is cached by
a digest of all sources in the folders of this package, of the kernel and of its callees, and of their
constants (`digests`). numba is imported when a kernel is first called, and its configuration stays.

A callee is found among the module's globals, so it is imported by name; `kernel(inline=True)` has no
signature of its own and is compiled into its callers.
"""

import functools
import importlib
import logging
import os
import pickle
import threading
import time
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from tokmill.tokenizer.jit.arrays import signature_of
from tokmill.tokenizer.jit.digests import digest_of_constants, digest_of_sources
from tokmill.tokenizer.jit.machine_code import (
    Compilation,
    Report,
    alone,
    announcing,
    cache_folder,
    forget,
    keep_code,
    reporting,
    tell,
)

P = ParamSpec("P")
R = TypeVar("R")

# numba would count references to every array at every call and assignment, which costs more than the work
# of a small kernel, and half of the compilation. The caller holds all arrays, so nothing has to be counted.
# Nobody calls a kernel from C.
_OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}

# A cache that cannot be read (a file cut short) or written (a full disk) is no reason to stop.
_CACHE_FAILURES = (OSError, EOFError, pickle.PickleError, ValueError)

logger = logging.getLogger(__name__)

_lock = threading.RLock()
_registry: list["Kernel[Any, Any]"] = []


class Kernel(Generic[P, R]):
    """A function that becomes machine code when it is first called.

    Attributes:
        py_func: the function as written.
        inline: whether it has no signature of its own and lives in its callers.
    """

    def __init__(self, py_func: Callable[P, R], inline: bool, build: Callable[[], Any] | None) -> None:
        functools.update_wrapper(self, py_func)
        self.py_func = py_func
        self.inline = inline
        self._build = build
        self._call: Callable[P, R] | None = None
        self._dispatcher: Any = None

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    @property
    def name(self) -> str:
        """Module and name."""
        return f"{self.py_func.__module__}.{self.py_func.__name__}"

    def retyped(self, types: Mapping[Any, Any]) -> "Kernel[..., R]":
        """Return a kernel of the same code for other types of arguments, with its own machine signature."""
        hints = typing.get_type_hints(self.py_func, include_extras=True)
        function = _copied(self.py_func, self.py_func.__globals__)
        function.__annotations__ = {name: types.get(hint, hint) for name, hint in hints.items()}
        made: Kernel[..., R] = Kernel(function, False, None)
        _registry.append(made)
        return made

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the machine code, made first if need be."""
        call = self._call or self.ready()
        return call(*args, **kwargs)

    def ready(self) -> Callable[P, R]:
        """Compile the kernel, or read it from the cache, unless done before; return the function to run."""
        with _lock:
            if self._call is None:
                self._call = self._make_call()
            return self._call

    def _make_call(self) -> Callable[P, R]:
        if jit_disabled():
            return self.py_func if self.inline else np.errstate(over="ignore")(self.py_func)
        if self._build is not None:
            return self.py_func
        return typing.cast(Callable[P, R], _for_python(self) if self.inline else self.dispatcher())

    def dispatcher(self) -> Any:
        """Return the object that numba calls in place of this kernel."""
        with _lock:
            if self._dispatcher is None:
                self._dispatcher = self._build() if self._build is not None else _compiled(self)
            return self._dispatcher


@overload
def kernel(function: Callable[P, R]) -> Kernel[P, R]: ...
@overload
def kernel(
    *, inline: bool = False, build: Callable[[], Any] | None = None
) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...


def kernel(
    function: Callable[P, R] | None = None, *, inline: bool = False, build: Callable[[], Any] | None = None
) -> Kernel[P, R] | Callable[[Callable[P, R]], Kernel[P, R]]:
    """Mark a function as a kernel.

    Args:
        function: annotated with the types of `arrays`, int, float, bool, or NamedTuples of these.
        inline: it has no signature of its own and is compiled into the kernels that call it.
        build: makes the object that numba calls in place of the function (an intrinsic), its twin in plain
            Python.
    """

    def mark(marked: Callable[P, R]) -> Kernel[P, R]:
        made = Kernel(marked, inline or build is not None, build)
        if not made.inline:
            _registry.append(made)
        return made

    return mark if function is None else mark(function)


def specialized(
    function: Callable[..., R], types: Mapping[str, Any], *, inline: bool = False, **callees: Kernel[..., Any]
) -> Kernel[..., R]:
    """Make a kernel of a function's code for other types of some arguments, and with other callees.

    Args:
        function: a plain function, or a kernel's `py_func`.
        types: by argument.
        inline: see `kernel`.
        **callees: kernels by the names that the function's module has for them. The kernel belongs to the
            module of the first one, and has its own machine signature and code.
    """
    copy = _copied(function, {**function.__globals__, **callees})
    copy.__annotations__ = {**typing.get_type_hints(function, include_extras=True), **types}
    for callee in [*callees.values()][:1]:
        copy.__module__ = callee.py_func.__module__
    return kernel(inline=inline)(copy)


def make_ready(modules: Collection[str], report: Report | None = None) -> float:
    """Compile the kernels of some modules, or read them from the cache.

    Args:
        modules: full names.
        report: called when a compilation begins (`seconds` is None) and whenever a kernel is ready.

    Returns:
        The time that it took, in seconds.
    """
    started = time.perf_counter()
    for module in modules:
        importlib.import_module(module)
    with _lock, reporting(report):
        for known in _registry:
            if known.py_func.__module__ in modules:
                known.ready()
    return time.perf_counter() - started


def kernel_modules_of(package: str) -> list[str]:
    """Return the full names of the imported modules below a package that have kernels."""
    return sorted({m for known in _registry if (m := known.py_func.__module__).startswith(package)})


def jit_disabled() -> bool:
    """Whether `NUMBA_DISABLE_JIT` asks for plain Python."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}


def _for_python(inlined: Kernel[..., Any]) -> Any:
    """Return an inline kernel as Python can call it, which only tests do."""
    import numba

    return numba.njit(_with_dispatchers(inlined.py_func), **_OPTIONS)


def _njit(function: Callable[..., Any], inline: bool) -> Any:
    """Return numba's object for a function."""
    import numba

    from tokmill.tokenizer.jit.compiler import InlineCompiler, KernelCompiler

    if not inline:
        return numba.njit(function, pipeline_class=KernelCompiler, **_OPTIONS)
    options = _OPTIONS | {"forceinline": True, "no_cpython_wrapper": True}
    return numba.njit(function, pipeline_class=InlineCompiler, **options)


def _compiled(compiling: Kernel[..., Any]) -> Any:
    if compiling.inline:
        return _njit(_with_dispatchers(compiling.py_func), inline=True)
    function = _copied(compiling.py_func, dict(compiling.py_func.__globals__))

    def see_callees() -> None:  # which the cache saves, and which take longer than to read it
        function.__globals__.update(_dispatchers(compiling.py_func))

    signature = signature_of(compiling.py_func)
    started = time.perf_counter()
    functions = _compiled_in(compiling)
    folder = cache_folder(digest_of_sources(functions))
    dispatcher = _njit(function, inline=False)
    keep_code(dispatcher, folder, digest_of_constants(functions))
    _read_lightly(dispatcher)
    with announcing(compiling.name, dispatcher, folder, see_callees), alone(folder, compiling.name):
        try:
            dispatcher.compile(signature)
        except _CACHE_FAILURES as error:
            logger.warning("%s: %s: compiled without the cache in %s", compiling.name, error, folder)
            forget(folder, compiling.py_func.__name__)
            see_callees()
            dispatcher = _njit(function, inline=False)
            dispatcher.compile(signature)
    dispatcher.disable_compile()
    cached = bool(dispatcher.stats.cache_hits)
    tell(Compilation(compiling.name, cached, time.perf_counter() - started))
    return dispatcher


def _callees(function: Callable[..., Any]) -> "dict[str, Kernel[..., Any]]":
    """The kernels that a function calls, by the names that its module has for them."""
    seen = function.__globals__
    return {name: seen[name] for name in function.__code__.co_names if isinstance(seen.get(name), Kernel)}


def _compiled_in(compiling: Kernel[..., Any]) -> list[Callable[..., Any]]:
    """The functions of a kernel and of all kernels that it calls, directly or not."""
    found, waiting = {compiling}, [compiling]
    while waiting:
        new = set(_callees(waiting.pop().py_func).values()) - found
        found |= new
        waiting += new
    return [known.py_func for known in found]


def _with_dispatchers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function so that it sees numba's objects where its module has kernels."""
    return _copied(function, function.__globals__ | _dispatchers(function))


def _dispatchers(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: callee.dispatcher() for name, callee in _callees(function).items()}


def _copied(function: Callable[..., Any], seen: dict[str, Any]) -> Callable[..., Any]:
    """Copy a function so that it sees other globals."""
    copy = types.FunctionType(function.__code__, seen, function.__name__, function.__defaults__)
    return functools.update_wrapper(copy, function)


def _read_lightly(dispatcher: Any) -> None:
    """Make numba read machine code without first loading what it only needs to compile.

    That would take longer than all else from the import to the first result, and most of the memory.
    Compiling loads it anyway. A version of numba that has no such method does as it always did.
    """
    light = getattr(dispatcher._cache, "_load_overload", None)
    if light is not None:
        dispatcher._cache.load_overload = light
