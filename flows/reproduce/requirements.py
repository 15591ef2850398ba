"""The exact versions of packages with which artifacts were made, as `pip install -r` reads them.

What records say comes first: of the run all packages that were installed, of an artifact those that its
content may depend on. Packages that tokmill needs and no record names have the versions of this environment.
"""

import re
from collections.abc import Iterable, Sequence
from importlib import metadata

from tokmill.flows.reproduce.known import Subject
from tokmill.tasks.store.record import Record

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OWN = "tokmill"


def requirements(subject: Subject, records: Sequence[Record]) -> str:
    """Return the text of a lock file."""
    recorded: dict[str, str] = {}
    for record in records:
        recorded |= record.provenance.packages
    if subject.run is not None:
        recorded |= subject.run.packages
    versions = {_normal(name): version for name, version in recorded.items()}
    needed = _needed(_OWN, set())
    here = {name: metadata.version(name) for name in sorted(needed) if name not in versions}
    chosen = {
        name: version for name, version in {**here, **versions}.items() if name in needed or name == _OWN
    }
    made = records[-1].provenance
    commit = f" at commit {made.git_commit}" if made.git_commit else ""
    head = [
        f"# {subject.name}, made with {made.python} on {made.platform}",
        f"# {_OWN} {chosen.pop(_OWN, 'of an unknown version')}{commit}; install it from where you have it",
        *(
            [f"# not in the records, so of the environment that bundled: {', '.join(sorted(here))}"]
            if here
            else []
        ),
    ]
    return "\n".join([*head, *(f"{name}=={chosen[name]}" for name in sorted(chosen))]) + "\n"


def _needed(package: str, seen: set[str]) -> set[str]:
    """Return the packages that are installed because a package needs them, with theirs."""
    for name in _requires(package):
        if name not in seen:
            seen.add(name)
            _needed(name, seen)
    return seen


def _requires(package: str) -> Iterable[str]:
    try:
        wanted = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return []
    names = [found[0] for text in wanted if "extra ==" not in text and (found := _NAME.match(text))]
    return [_normal(name) for name in names if _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
