"""What a part of the examination returns."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from platform import python_version
from typing import Any

from packaging.requirements import Requirement

from tokmill.flows.errors import UsageError
from tokmill.flows.run.machine import open_store
from tokmill.flows.server.findings import Finding, look_at_packages
from tokmill.flows.server.served_folder import last_served
from tokmill.flows.server.settings import may_have_a_server, prepare_terminal_run
from tokmill.tasks.store import Store
from tokmill.tokenizer.jit.kernel import jit_disabled

_PYTHONS = ((3, 11), (3, 13))
_OPTIONAL = ("s3fs", "gcsfs", "adlfs", "prefect-dask", "prefect-ray", "matplotlib", "pandas", "polars")


@dataclass
class Part:
    """Facts and findings about one subject.

    Attributes:
        title: the subject, e.g. `store`.
        facts: name → text for people.
        figures: name → value, for `--json`.
        findings: what is wrong, or worth knowing.
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def note(self, key: str, what: str, fix: str) -> None:
        """Add advice."""
        self.findings.append(Finding(f"{self.title} {key}", what, fix, fails=False))

    def fail(self, key: str, what: str, fix: str) -> None:
        """Add something that does not work."""
        self.findings.append(Finding(f"{self.title} {key}", what, fix))


def look_at_installation() -> Part:
    """Return the versions of Python, tokmill and what it needs."""
    part = Part("installation", findings=look_at_packages())
    versions = {requirement.name: metadata.version(requirement.name) for requirement in required()}
    extra = {name: version for name in _OPTIONAL if (version := _version(name)) is not None}
    bounds = {requirement.name: str(requirement.specifier) for requirement in required()}
    part.figures = {
        "python": python_version(),
        "tokmill": metadata.version("tokmill"),
        "packages": {name: {"version": v, "bounds": bounds[name]} for name, v in versions.items()},
        "optional": extra,
    }
    part.facts = {
        "tokmill": f"{part.figures['tokmill']} on Python {python_version()}",
        "requirements": ", ".join(f"{name} {version} ({bounds[name]})" for name, version in versions.items()),
        "optional": ", ".join(f"{name} {version}" for name, version in extra.items()) or "none",
    }
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        what = f"Python {python_version()} is not one that tokmill is tested with"
        part.note("python", what, "use Python 3.11, 3.12 or 3.13")
    if jit_disabled():
        what = "NUMBA_DISABLE_JIT is set, so kernels run as plain Python, a thousand times slower"
        part.fail("jit", what, "unset it")
    return part


def required() -> Iterator[Requirement]:
    """Yield tokmill's own requirements, without those of extras, by name."""
    for requirement in sorted(map(Requirement, metadata.requires("tokmill") or []), key=lambda one: one.name):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def look_at_server(location: str, *, free: bool = False) -> Part:
    """Return what is wrong with a store's server; `free` ends dead runs there, and removes dead workers."""
    part = Part("server")
    store = _store(location)
    serves = None if store is None else last_served(store.root / ".up")
    if serves is None and not may_have_a_server():
        part.facts["api"] = "none is configured; each run brings its own, and `tokmill up` starts one"
        part.figures["api"] = None
        return part
    prepare_terminal_run()
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - takes a second

    from tokmill.flows.server.doctor import look_at_dead, look_at_doors, look_at_runs  # noqa: PLC0415 - likewise

    api = (PREFECT_API_URL.value() or (f"{serves.url}/api" if serves else "")).rstrip("/") or None
    part.figures["api"] = api
    part.facts["api"] = api or "none is configured"
    if api is None:
        return part
    dead, freed = look_at_dead(api, store, free=free)
    part.figures["freed"] = freed
    part.facts |= {"freed": ", ".join(freed)} if freed else {}
    part.findings = [*dead, *look_at_runs(api), *look_at_doors(api)]
    return part


def _store(location: str) -> Store | None:
    try:
        store = open_store(location)
    except UsageError:  # the store's own part says that
        return None
    return store if store.root.is_dir() else None
