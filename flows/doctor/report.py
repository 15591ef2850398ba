"""What a part of the examination returns."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from platform import python_version
from typing import Any

from packaging.requirements import Requirement

from tokmill.tokenizer.jit.kernel import jit_disabled

_PYTHONS = ((3, 11), (3, 13))
_OPTIONAL = ("s3fs", "gcsfs", "adlfs", "prefect-dask", "prefect-ray", "matplotlib", "pandas", "polars")


@dataclass(frozen=True)
class Finding:
    """A problem.

    Attributes:
        key: identifies the problem when it is found again.
        what: place and problem.
        fix: what to do about it.
        fails: whether something does not work; False for advice.
    """

    key: str
    what: str
    fix: str
    fails: bool = True

    @property
    def text(self) -> str:
        """Place, problem and fix, in one line."""
        return f"{self.what}; {self.fix}"


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


def look_at_packages() -> list[Finding]:
    """Return the installed packages with incompatible versions.

    pip obeys the version bounds when it installs tokmill, but may break them when it installs other packages.
    """
    return list(out_of_bounds(metadata.requires("tokmill") or []))


def out_of_bounds(requirements: list[str]) -> Iterator[Finding]:
    """Yield the installed packages whose versions these requirements exclude."""
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        installed = metadata.version(requirement.name)
        if not requirement.specifier.contains(installed, prereleases=True):
            yield Finding(
                f"package {requirement.name}",
                f"{requirement.name} {installed} is installed; tokmill works with {requirement.specifier}",
                f"python -m pip install '{requirement.name}{requirement.specifier}'",
            )
