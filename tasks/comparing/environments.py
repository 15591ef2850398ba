"""What differs between the processes that made two artifacts of one recipe, or executed two runs."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tokmill.tasks.comparing.causes import Cause, Sort
from tokmill.tasks.store import Absent, Provenance, Record


class Changed(NamedTuple):
    """One thing that differs: a package, Python, the system, or the code."""

    sort: Sort
    name: str
    a: str | None
    b: str | None

    @property
    def text(self) -> str:
        """What differs, in words."""
        if self.a is None or self.b is None:
            there = f"{self.name} {self.a or self.b}"
            return f"{there} was {'only in the second' if self.a is None else 'only in the first'}"
        return f"{self.name} {self.a} → {self.b}"


def package_changes(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Changed]:
    """Yield the packages of which two environments have different versions."""
    for name in sorted({*a, *b}):
        if a.get(name) != b.get(name):
            yield Changed("package", name, a.get(name), b.get(name))


def process_changes(a: Provenance, b: Provenance) -> Iterator[Changed]:
    """Yield what differs beside the packages: Python, the system, the code of a checkout."""
    if a.python != b.python:
        yield Changed("package", "python", a.python, b.python)
    if a.platform != b.platform:
        yield Changed("platform", "platform", a.platform, b.platform)
    if code_of(a) != code_of(b):
        yield Changed("code", "code", code_of(a), code_of(b))


def code_of(made: Provenance) -> str | None:
    """Return the commit of the code, with the digest of what was not committed; None if it is installed."""
    if made.git_commit is None:
        return None
    dirty = f" with changes {(made.dirty_digest or 'of unknown content')[:12]}" if made.git_dirty else ""
    return f"{made.git_commit[:12]}{dirty}"


def causes_of_environment(a: Record, b: Record) -> list[Cause]:
    """Return why two artifacts of one recipe have different content, as far as their provenance tells."""
    old, new = a.provenance, b.provenance
    changed = [*package_changes(old.packages, new.packages), *process_changes(old, new)]
    where = f"{b.kind}/{b.name}"
    found = [
        Cause(
            each.sort,
            where,
            each.name,
            Absent.ABSENT if each.a is None else each.a,
            Absent.ABSENT if each.b is None else each.b,
            f"{each.text}; the recipe is the same, and it was made again",
        )
        for each in changed
    ]
    return found or [
        Cause(
            "unknown",
            where,
            "content",
            a.content_digest[:12],
            b.content_digest[:12],
            "recipe, packages, platform and code are the same: the stage is not deterministic, or a machine "
            "or disk failed",
        )
    ]
