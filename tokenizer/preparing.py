"""Compile kernels ahead of time, so that later calls do not wait."""

import importlib
import pkgutil
from collections.abc import Collection

from tokmill.tokenizer.jit import kernel_modules_of, make_ready
from tokmill.tokenizer.jit.machine_code import Report
from tokmill.tokenizer.pipeline.families import FAMILIES, find_family


def kernel_modules() -> list[str]:
    """Return the full name of every module with kernels: the shared ones, and those of families."""
    package = importlib.import_module("tokmill.tokenizer.kernels")
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")
    for family in FAMILIES:
        find_family(family)
    return kernel_modules_of("tokmill.tokenizer.")


def prepare(report: Report | None = None, modules: Collection[str] | None = None) -> float:
    """Compile kernels, or read them from the cache.

    Args:
        report: called when a compilation begins (`seconds` is None) and whenever a kernel is ready.
        modules: names of modules within their packages, e.g. `split`; all by default.

    Returns:
        The time that it took, in seconds.

    Raises:
        ValueError: no module with kernels has one of these names.
    """
    known = kernel_modules()
    if modules is None:
        return make_ready(known, report)
    missing = set(modules) - {_own_name(name) for name in known}
    if missing:
        raise ValueError(f"prepare: no module with kernels is called {', '.join(sorted(missing))}")
    return make_ready([name for name in known if _own_name(name) in modules], report)


def _own_name(module: str) -> str:
    return module.rpartition(".")[2]
