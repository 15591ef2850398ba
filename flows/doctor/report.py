"""What a part of the examination returns."""

import sys
from collections.abc import Iterable
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
    """A problem."""

    key: str  # identifies the problem when it is found again
    what: str  # place and problem
    fix: str  # what to do about it
    fails: bool = True  # whether something does not work; False for advice

    @property
    def text(self) -> str:
        """Place, problem and fix, in one line."""
        return f"{self.what}; {self.fix}"


@dataclass
class Part:
    """Facts and findings about one subject."""

    title: str  # the subject, e.g. `store`
    facts: dict[str, str] = field(default_factory=dict)  # name → text for people
    figures: dict[str, Any] = field(default_factory=dict)  # name → value, for `--json`
    findings: list[Finding] = field(default_factory=list)  # what is wrong, or worth knowing

    def note(self, key: str, what: str, fix: str) -> None:
        """Add advice."""
        self.findings.append(Finding(f"{self.title} {key}", what, fix, fails=False))

    def fail(self, key: str, what: str, fix: str) -> None:
        """Add something that does not work."""
        self.findings.append(Finding(f"{self.title} {key}", what, fix))


def look_at_installation() -> Part:
    """Return the versions of Python, tokmill and what it needs."""
    packages = {
        each.name: {"version": metadata.version(each.name), "bounds": str(each.specifier)}
        for each in required()
    }
    own, python = metadata.version("tokmill"), python_version()
    extra = {name: metadata.version(name) for name in _OPTIONAL if _is_installed(name)}
    part = Part("installation", findings=look_at_packages())
    part.figures = {"python": python, "tokmill": own, "packages": packages, "optional": extra}
    part.facts = {
        "tokmill": f"{own} on Python {python}",
        "requirements": ", ".join(
            f"{name} {each['version']} ({each['bounds']})" for name, each in packages.items()
        ),
        "optional": ", ".join(f"{name} {version}" for name, version in extra.items()) or "none",
    }
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        what = f"Python {python} is not one that tokmill is tested with"
        part.note("python", what, "use Python 3.11, 3.12 or 3.13")
    if jit_disabled():
        what = "NUMBA_DISABLE_JIT is set, so kernels run as plain Python, a thousand times slower"
        part.fail("jit", what, "unset it")
    return part


def _is_installed(name: str) -> bool:
    return any(metadata.distributions(name=name))


def required() -> list[Requirement]:
    """Return tokmill's own requirements, without those of extras, by name."""
    return _without_extras(metadata.requires("tokmill") or [])


def _without_extras(requirements: Iterable[str]) -> list[Requirement]:
    known = sorted(map(Requirement, requirements), key=lambda each: each.name)
    return [each for each in known if each.marker is None or each.marker.evaluate({"extra": ""})]


def look_at_packages(requirements: Iterable[str] | None = None) -> list[Finding]:
    """Return the installed packages whose versions the requirements exclude, by default tokmill's own.

    pip obeys the version bounds when it installs tokmill, but may break them when it installs other packages.
    """
    known = required() if requirements is None else _without_extras(requirements)
    versions = [(each, metadata.version(each.name)) for each in known]
    return [
        Finding(
            f"package {each.name}",
            f"{each.name} {installed} is installed; tokmill works with {each.specifier}",
            f"python -m pip install '{each.name}{each.specifier}'",
        )
        for each, installed in versions
        if not each.specifier.contains(installed, prereleases=True)
    ]
