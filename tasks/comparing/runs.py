"""Compares runs: what differs in parameters, environment, inputs, artifacts and metrics, and why.

The first run is the one that the others are measured against. Artifacts are compared by the task that made
or found them, so runs of two profiles can be compared, too; shards are left out, since what combines them is
there. Each difference of artifacts is explained by its first causes (`walk`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from tokmill.tasks.comparing.causes import (
    Cause,
    Changed,
    code_of,
    environment_changes,
    once_each,
    plain,
    record_of,
)
from tokmill.tasks.comparing.walk import Walk, own_causes
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import percent
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Difference, Record, Run, Store, payload_differences
from tokmill.tasks.store.references import short_ids
from tokmill.tasks.store.rows import flat
from tokmill.tasks.store.runs import RunInput

_UNCOMPARED: Final = ("experiment.", "description", "schedule.")
_MACHINE: Final = "execution."
_SHARD: Final = "_shard"
_SHOWN: Final = 12
_ENDED: Final = {"running": "is running", "cancelled": "was cancelled", "suspended": "is suspended"}


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


class Reasons(NamedTuple):
    """Why a run differs from the first: its first causes, and sentences, without full stops."""

    causes: Sequence[Cause]
    words: Sequence[str]
    endings: Sequence[str]


@dataclass(frozen=True)
class ArtifactLine:
    """The artifact of one task in each run."""

    task: str  # its title
    refs: Sequence[ArtifactRef | None]  # None where a run has none
    labels: Sequence[str | None]  # their references for people
    causes: Sequence[Sequence[Cause]]
    """For each run, why its artifact differs from that of the first; none if it does not."""

    @property
    def differs(self) -> bool:
        """Whether not all runs have the same content."""
        return len({None if ref is None else ref.content_digest for ref in self.refs}) > 1

    @property
    def cells(self) -> list[str | None]:
        """What a table shows of each run: label and digest, or that the content is that of the first."""
        digests = [None if ref is None else ref.content_digest for ref in self.refs]
        cells = [
            digest and f"{label} {digest[:8]}" for label, digest in zip(self.labels, digests, strict=True)
        ]
        same = [place > 0 and digest == digests[0] is not None for place, digest in enumerate(digests)]
        return ["the same" if is_same else cell for is_same, cell in zip(same, cells, strict=True)]


@dataclass(frozen=True)
class Comparison:
    """Some runs side by side; the first one is the one that the others are measured against."""

    store: Store
    runs: Sequence[Run]  # at least two

    @cached_property
    def parameters(self) -> Sequence[Line]:
        """The parameters that differ; those of the machine come last."""
        found = [line for line in lines([dict(flat(run.parameters)) for run in self.runs]) if line.differs]
        kept = [line for line in found if not line.name.startswith(_UNCOMPARED)]
        return sorted(kept, key=lambda line: line.name.startswith(_MACHINE))

    @cached_property
    def inputs(self) -> Sequence[Line]:
        """The sources and other inputs whose content differs."""
        inputs = [dict(map(_input, run.inputs)) for run in self.runs]
        return [line for line in lines(inputs) if line.differs]

    @cached_property
    def metrics(self) -> Sequence[Line]:
        """All metrics."""
        return list(lines([run.metrics for run in self.runs]))

    @cached_property
    def environments(self) -> Sequence[Sequence[Changed]]:
        """For each run, what differs from the first in packages, Python, system and code."""
        first = self.runs[0]
        return [
            list(
                environment_changes(
                    first.provenance,
                    run.provenance,
                    (first.packages, run.packages) if first.packages and run.packages else None,
                )
            )
            for run in self.runs
        ]

    @cached_property
    def artifacts(self) -> Sequence[ArtifactLine]:
        """The artifacts of the runs, in the order of the DAG."""
        by_task = [
            {each.task: each.ref for each in run.artifacts if not each.ref.kind.endswith(_SHARD)}
            for run in self.runs
        ]
        had = [{(each.ref.kind, each.ref.name): each.ref for each in run.artifacts} for run in self.runs]
        walks = [Walk(self.store, (had[0], own)) for own in had]
        found = []
        for task, refs in lines(by_task):
            labels = [None if ref is None else self._label(ref) for ref in refs]
            causes = [self._why(refs[0], ref, walk) for ref, walk in zip(refs, walks, strict=True)]
            found.append(ArtifactLine(task, refs, labels, causes))
        return found

    @property
    def tables(self) -> list[SideBySide]:
        """What differs, side by side, and all metrics."""
        artifacts = [Line(line.task, line.cells) for line in self.artifacts]
        return [
            SideBySide("parameters", "name", self.parameters),
            SideBySide("inputs", "name", self.inputs),
            SideBySide("artifacts", "stage", artifacts),
            SideBySide("metrics", "metric", self.metrics, changes=True),
        ]

    def causes(self, place: int) -> list[Cause]:
        """Return the first causes by which a run's artifacts differ from those of the first."""
        return once_each(cause for line in self.artifacts for cause in line.causes[place])

    def num_differing(self, place: int) -> int:
        """Return how many artifacts of a run differ from those of the first."""
        pairs = [(line.refs[0], line.refs[place]) for line in self.artifacts]
        return sum(a.content_digest != b.content_digest for a, b in pairs if a is not None and b is not None)

    def reasons(self, place: int) -> Reasons:
        """Return why a run differs from the first."""
        causes, num = self.causes(place), self.num_differing(place)
        if num:
            reached = [line.task for line in self.artifacts if line.causes[place]]
            words = [
                f"so {num:,} {'artifact differs' if num == 1 else 'artifacts differ'}: {', '.join(reached)}"
            ]
        else:
            one_lacks = any((line.refs[0] is None) != (line.refs[place] is None) for line in self.artifacts)
            words = [f"no artifact {'that both have ' if one_lacks else ''}differs"]
        fields = {cause.field for cause in causes}
        idle = [each.text for each in self.environments[place] if each.name not in fields]
        if idle:
            more = [f"{len(idle) - _SHOWN} more"] if len(idle) > _SHOWN else []
            words.append(f"{', '.join([*idle[:_SHOWN], *more])}; no artifact differs because of that")
        return Reasons(causes, words, self.endings(place))

    @cached_property
    def heads(self) -> list[str]:
        """The runs' ids, as short as they differ from those of other runs."""
        return short_ids(self.store, [run.run_id for run in self.runs])

    def endings(self, place: int) -> list[str]:
        """Return how a run and the first ended, if not all went well, and what only the other one has."""
        ends = []
        for own, other in ((place, 0), (0, place)):
            missing = [line.task for line in self.artifacts if line.refs[own] is None and line.refs[other]]
            if self.runs[own].state != "completed" or missing:
                ends.append(_ending(self.runs[own], self.heads[own], missing))
        return ends

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return {
            "runs": [
                {
                    "run_id": run.run_id,
                    "name": run.name,
                    "state": run.state,
                    "experiment": run.experiment,
                    "message": run.message,
                    "started": run.started,
                    "code": code_of(run.provenance),
                    "environment": [each._asdict() for each in self.environments[place]],
                    "causes": [cause.to_json() for cause in self.causes(place)],
                    "num_differing": self.num_differing(place),
                }
                for place, run in enumerate(self.runs)
            ],
            "parameters": {line.name: list(line.values) for line in self.parameters},
            "inputs": {line.name: list(line.values) for line in self.inputs},
            "artifacts": [
                {
                    "task": line.task,
                    "artifacts": list(line.labels),
                    "content": [None if ref is None else ref.content_digest for ref in line.refs],
                    "differs": line.differs,
                    "causes": [[cause.field for cause in causes] for causes in line.causes],
                }
                for line in self.artifacts
            ],
            "metrics": {line.name: list(line.values) for line in self.metrics},
        }

    def _label(self, ref: ArtifactRef) -> str:
        label = self.store.names.find(ref.kind, ref.name, ref.fingerprint)
        return f"{ref.kind}/{ref.name}" + (f"@{label}" if label else "")

    def _why(self, a: ArtifactRef | None, b: ArtifactRef | None, walk: Walk) -> Sequence[Cause]:
        if a is None or b is None or a.content_digest == b.content_digest:
            return []
        before, after = record_of(self.store, a), record_of(self.store, b)
        if before is None or after is None:
            gone = a if before is None else b
            text = f"{gone.kind}/{gone.name} was removed without a trace, so its causes are not known"
            return [Cause("unknown", f"{gone.kind}/{gone.name}", "record", None, None, text)]
        return walk.causes(before, after)


def _ending(run: Run, head: str, missing: Sequence[str]) -> str:
    without = f"without {', '.join(missing)}" if missing else ""
    if run.state == "completed":
        return f"{head} is {without}"
    ended = f"{head} {_ENDED.get(run.state, run.state)}"
    return "; ".join(filter(None, [f"{ended}: {run.message}" if run.message else ended, without]))


def _input(each: RunInput) -> tuple[str, str]:
    name = f"{each.role} {each.name}" if each.kind is None else f"{each.kind}/{each.name}"
    files = f", {each.num_files:,} files, {each.num_bytes:,} bytes" if each.num_bytes is not None else ""
    return name, f"{each.digest[:12]}{files}"


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
