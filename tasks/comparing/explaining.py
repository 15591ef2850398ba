"""Why two artifacts differ: what `tokmill compare --artifacts` says, and `tokmill compare` of artifacts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokmill.tasks.comparing.causes import Cause, plain, record_of
from tokmill.tasks.comparing.runs import Line, SideBySide
from tokmill.tasks.comparing.walking import Walk, own_causes
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Scalar
from tokmill.tasks.store import Difference, Record, Store, payload_differences


@dataclass(frozen=True)
class Explanation:
    """How and why two artifacts differ.

    Attributes:
        a, b: the records.
        causes: the first causes, upstream ones first; none if the contents are equal.
        without_effect: what differs in the recipes although the contents are equal.
        fields: the fields of the recipes that differ; inputs are digests there.
    """

    a: Record
    b: Record
    causes: Sequence[Cause]
    without_effect: Sequence[Cause]
    fields: Sequence[Difference]

    @property
    def same_content(self) -> bool:
        """Whether the contents are equal, whatever the recipes are."""
        return self.a.content_digest == self.b.content_digest

    @property
    def metrics(self) -> dict[str, tuple[Scalar | None, Scalar | None]]:
        """The metrics that differ, by name: both values."""
        names = [*self.a.metrics, *(name for name in self.b.metrics if name not in self.a.metrics)]
        pairs = {name: (self.a.metrics.get(name), self.b.metrics.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    @property
    def tables(self) -> list[SideBySide]:
        """What differs in the recipes, where inputs are digests, and in the metrics."""
        fields = [Line(each.field, (plain(each.a), plain(each.b))) for each in self.fields]
        metrics = [Line(name, pair) for name, pair in self.metrics.items()]
        return [
            SideBySide("recipes", "field", fields),
            SideBySide("metrics", "metric", metrics, changes=True),
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
            "metrics": {name: list(pair) for name, pair in self.metrics.items()},
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
    before, after = _record(store, a), _record(store, b)
    walk = Walk(store)
    causes = walk.causes(before, after)
    idle = own_causes(before, after) if before.content_digest == after.content_digest else []
    fields = payload_differences(before.payload, after.payload)
    return Explanation(before, after, causes, idle, fields)


def _record(store: Store, ref: ArtifactRef) -> Record:
    found = record_of(store, ref)
    if found is None:
        raise StoreError(
            f"{ref.kind}/{ref.name} with content {ref.content_digest[:16]} is not in {store.location}"
        )
    return found
