"""Compile kernels ahead of time, so that later calls do not wait."""

import importlib
import pkgutil
from collections.abc import Collection, Iterator
from importlib.util import find_spec

from tokmill.tokenizer.jit import make_ready
from tokmill.tokenizer.jit.machine_code import Report
from tokmill.tokenizer.pipeline.families import FAMILIES

_SHARED = "tokmill.tokenizer.kernels", "tokmill.tokenizer.merging.kernels"


def kernel_modules() -> Iterator[str]:
    """Yield the full name of every module with kernels: the shared ones, then those of families."""
    own = [f"{module.rpartition('.')[0]}.kernels" for module in FAMILIES.values()]
    for package in [*_SHARED, *filter(find_spec, own)]:
        folders = getattr(importlib.import_module(package), "__path__", None)
        names = [] if folders is None else sorted(found.name for found in pkgutil.iter_modules(folders))
        yield from (f"{package}.{name}" for name in names) if names else [package]


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
    known = list(kernel_modules())
    if modules is None:
        return make_ready(known, report)
    missing = set(modules) - {_own_name(name) for name in known}
    if missing:
        raise ValueError(f"prepare: no module with kernels is called {', '.join(sorted(missing))}")
    return make_ready([name for name in known if _own_name(name) in modules], report)


def _own_name(module: str) -> str:
    return module.rpartition(".")[2]
