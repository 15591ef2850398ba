"""The installed versions of tokmill's requirements, and the bounds that they should be within."""

import sys
from collections.abc import Iterator
from importlib import metadata
from platform import python_version

from packaging.requirements import Requirement

from tokmill.flows.doctor.report import Part
from tokmill.flows.server.findings import look_at_packages
from tokmill.tokenizer.jit.kernel import jit_disabled

_PYTHONS = ((3, 11), (3, 13))
_OPTIONAL = ("s3fs", "gcsfs", "adlfs", "prefect-dask", "prefect-ray", "matplotlib", "pandas", "polars")


def look_at_installation() -> Part:
    """Return the versions of Python, tokmill and what it needs."""
    found = Part("installation", findings=look_at_packages())
    versions = {requirement.name: metadata.version(requirement.name) for requirement in required()}
    extra = {name: version for name in _OPTIONAL if (version := _version(name)) is not None}
    bounds = {requirement.name: str(requirement.specifier) for requirement in required()}
    found.figures = {
        "python": python_version(),
        "tokmill": metadata.version("tokmill"),
        "packages": {name: {"version": v, "bounds": bounds[name]} for name, v in versions.items()},
        "optional": extra,
    }
    found.facts = {
        "tokmill": f"{found.figures['tokmill']} on Python {python_version()}",
        "requirements": ", ".join(f"{name} {version} ({bounds[name]})" for name, version in versions.items()),
        "optional": ", ".join(f"{name} {version}" for name, version in extra.items()) or "none",
    }
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        found.note(
            "python",
            f"Python {python_version()} is not one that tokmill is tested with",
            "use Python 3.11, 3.12 or 3.13",
        )
    if jit_disabled():
        found.fail(
            "jit",
            "NUMBA_DISABLE_JIT is set, so kernels run as plain Python, a thousand times slower",
            "unset it",
        )
    return found


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
