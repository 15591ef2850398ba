"""Problems of a server, its log, or installed packages."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement


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
