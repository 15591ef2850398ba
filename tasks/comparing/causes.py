"""A cause: the first thing in the lineage of two artifacts by which they come to differ.

What follows from a cause is none: if a parameter of the balance differs, the tokenizers that were trained
with the two balances differ because of it, and not for a reason of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import Any, Final, Literal, TypeAlias

from tokmill.tasks.store import Absent

Sort: TypeAlias = Literal["source", "input", "parameter", "stage", "package", "platform", "code", "unknown"]
"""What differs: a source's files, another input from outside, a parameter, the stage or its version, a
package or Python, the operating system, the code of a checkout; or it cannot be found out."""

WEAK: Final = "text"
"""The field of a cause that says only that a shard's text differs; a corpus, if one is found, says why."""


@dataclass(frozen=True)
class Cause:
    """One cause.

    Attributes:
        sort: what differs.
        artifact: where it enters, as `kind/name`.
        field: e.g. `balance.temperature`, `web` (a source), `pyarrow` (a package).
        a, b: both values; `Absent.ABSENT` where there is none.
        text: what differs, as a sentence without a full stop.
        details: more of it, a line each: the files of a source.
        data: the same for programs.
        through: the artifacts by which it reaches the compared ones, the nearest to the cause first.
    """

    sort: Sort
    artifact: str
    field: str
    a: Any
    b: Any
    text: str
    details: Sequence[str] = ()
    data: Mapping[str, Any] = field_of(default_factory=dict)
    through: Sequence[str] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for causes that are one: a parameter that several stages take, a source of several shards."""
        return (self.sort, self.field.rpartition(".")[2], repr(self.a), repr(self.b))

    def reaching(self, artifact: str) -> "Cause":
        """Return the same cause as it reaches an artifact that was made from the one where it enters."""
        if artifact in (self.artifact, *self.through):
            return self
        return replace(self, through=(*self.through, artifact))

    def to_json(self) -> dict[str, Any]:
        """Return the cause as JSON values."""
        return {
            "sort": self.sort,
            "artifact": self.artifact,
            "field": self.field,
            "a": plain(self.a),
            "b": plain(self.b),
            "text": self.text,
            "details": list(self.details),
            **self.data,
            "through": list(self.through),
        }


def once_each(causes: Iterable[Cause]) -> list[Cause]:
    """Return the causes, each once; that a shard's text differs is none beside a source that differs."""
    found: dict[tuple[str, ...], Cause] = {}
    for cause in causes:
        found.setdefault(cause.key, cause)
    kept = list(found.values())
    if any(cause.sort == "source" and cause.field != WEAK for cause in kept):
        return [cause for cause in kept if cause.field != WEAK]
    return kept


def plain(value: Any) -> Any:
    """Return a value for JSON; null where there is none."""
    return None if isinstance(value, Absent) else value


def value_text(value: Any) -> str:
    """Return a value as people write it; long ones are cut."""
    if value is None or isinstance(value, Absent):
        return "unset"
    text = value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_LONGEST: Final = 60
