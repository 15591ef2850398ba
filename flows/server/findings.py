"""What a look at a server, its log or its packages finds."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        key: the same for the same thing seen again.
        text: where, what, and what helps; one line.
        fails: whether something does not work, and not only could be safer.
    """

    key: str
    text: str
    fails: bool = True


def look_at_packages() -> list[Finding]:
    """Return the installed packages whose version tokmill does not work with.

    pip keeps to the bounds when it installs tokmill, and may pass them later for another package's sake.
    """
    return list(out_of_bounds(metadata.requires("tokmill") or []))


def look_at_faults(logs: Path) -> list[Finding]:
    """Return what went wrong in the server of a `tokmill up`, by the file that it writes."""
    try:
        lines = (logs / "faults.log").read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return [Finding(f"fault {line}", f"the log of `tokmill up`: {line}") for line in lines]


def out_of_bounds(requirements: list[str]) -> Iterator[Finding]:
    """Yield what is installed in a version that these requirements (as packages declare them) exclude."""
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        installed = metadata.version(requirement.name)
        if not requirement.specifier.contains(installed, prereleases=True):
            yield Finding(
                f"package {requirement.name}",
                f"{requirement.name} {installed} is installed; tokmill works with {requirement.specifier}: "
                f"python -m pip install '{requirement.name}{requirement.specifier}'",
            )
