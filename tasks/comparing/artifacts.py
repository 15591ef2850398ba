"""Why two artifacts differ (`tokmill compare --artifacts`), and tables of what differs, for any renderer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokmill.tasks.comparing.causes import Cause, plain, record_of
from tokmill.tasks.comparing.walk import Walk, own_causes
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import percent
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Difference, Record, Store, payload_differences


class Line(NamedTuple):
    """A name, and its value in each run; None where a run has none."""

    name: str
    values: Sequence[Any]

    @property
    def differs(self) -> bool:
        """Whether not all values are equal."""
        return any(value != self.values[0] for value in self.values)

    @property
    def is_shared(self) -> bool:
        """Whether it is of more than one run: two have a value, or it says what one loses of its text."""
        return self.name.endswith("unknown_share") or sum(value is not None for value in self.values) > 1


class SideBySide(NamedTuple):
    """A table of some runs, or of two artifacts: what differs, for any renderer."""

    title: str  # of the table
    first: str  # the heading of the names
    lines: Sequence[Line]  # the rows; values are numbers, texts, or plain values of a profile
    changes: bool = False  # whether the change of numbers against the first is shown beside each value


def lines(given: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """Yield what has a value in one of some mappings, by name."""
    names = dict.fromkeys(name for values in given for name in values)
    yield from (Line(name, [values.get(name) for values in given]) for name in names)


def change_text(a: Any, b: Any) -> str:
    """Return how a number changed: `+1.2 %`, or the difference from 0; empty if it did not, or is none."""
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in (a, b)) or a == b:
        return ""
    if a == 0:
        return f"{b - a:+.4g}"
    return f"{'+' if b > a else ''}{percent((b - a) / abs(a), 1)}".replace("%", " %")


@dataclass(frozen=True)
class Explanation:
    """How and why two artifacts differ."""

    a: Record
    b: Record
    causes: Sequence[Cause]  # the first causes, upstream ones first; none if the contents are equal
    without_effect: Sequence[Cause]  # what differs in the recipes although the contents are equal
    fields: Sequence[Difference]  # the fields of the recipes that differ; inputs are digests there

    @property
    def same_content(self) -> bool:
        """Whether the contents are equal, whatever the recipes are."""
        return self.a.content_digest == self.b.content_digest

    @property
    def metrics(self) -> list[Line]:
        """The metrics that differ."""
        return [line for line in lines([self.a.metrics, self.b.metrics]) if line.differs]

    @property
    def tables(self) -> list[SideBySide]:
        """What differs in the recipes, where inputs are digests, and in the metrics."""
        fields = [Line(each.field, (plain(each.a), plain(each.b))) for each in self.fields]
        return [
            SideBySide("recipes", "field", fields),
            SideBySide("metrics", "metric", self.metrics, changes=True),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {
            "a": self.a.reference,
            "b": self.b.reference,
            "same_content": self.same_content,
            "causes": [cause.to_json() for cause in self.causes],
            "without_effect": [cause.to_json() for cause in self.without_effect],
            "fields": [{"field": each.field, "a": plain(each.a), "b": plain(each.b)} for each in self.fields],
            "metrics": {line.name: list(line.values) for line in self.metrics},
        }


def explain(store: Store, a: ArtifactRef, b: ArtifactRef) -> Explanation:
    """Explain how and why two artifacts of one kind differ, by the first causes in their lineage.

    Raises:
        StoreError: they are of different kinds, or one of them was never in this store.
    """
    if a.kind != b.kind:
        raise StoreError(
            f"{a.kind}/{a.name} and {b.kind}/{b.name} are of different kinds; compare two of one kind"
        )
    before, after = record_of(store, a), record_of(store, b)
    if before is None or after is None:
        gone = a if before is None else b
        raise StoreError(
            f"{gone.kind}/{gone.name} with content {gone.content_digest[:16]} is not in {store.location}"
        )
    causes = Walk(store).causes(before, after)
    idle = own_causes(before, after) if before.content_digest == after.content_digest else []
    fields = payload_differences(before.payload, after.payload)
    return Explanation(before, after, causes, idle, fields)
