"""What a run would do, without doing it: which tasks are cached, which would run, and why.

The planning executor walks the same composition as a run. An artifact that the store holds gives its
content digest to what follows; one that it does not hold makes what follows pending, because its digest is
not known before it is made (and may turn out to be what it was: then what follows is cached after all). The
reason is found by comparing the request's fingerprint payload, field by field, with that of the newest
artifact of the same kind and name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokmill.flows.profile import Profile
from tokmill.flows.run.composition import Composition, Node, Pending, Step, pending
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store, payload_differences


@dataclass(frozen=True)
class PlanRow:
    """One task of a plan.

    Attributes:
        task: the title that people see, e.g. `encode[english/3]`.
        name: the artifact's name.
        action: `cached`, or `run` where the artifact is not there.
        reason: why it would run; empty where it is cached.
        details: the fields that differ from the newest artifact of that kind and name, `field: old → new`.
    """

    task: str
    name: str
    action: Literal["cached", "run"]
    reason: str = ""
    details: Sequence[str] = ()


class PlanningExecutor:
    """An executor that makes nothing; see `flows.run.composition.Executor`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rows: list[PlanRow] = []

    def one(self, step: Step) -> Node:
        """Look one step up."""
        if waiting := pending(step):
            return self._would_run(step, f"waits for {waiting[0].task}")
        ref = self.store.lookup(step.request())
        if ref is None:
            reason, details = self._why(step)
            return self._would_run(step, reason, details)
        self.rows.append(PlanRow(step.title, step.name, "cached"))
        return ref

    def each(self, steps: Sequence[Step]) -> list[Node]:
        """Look the steps of a mapped stage up, in order."""
        return [self.one(step) for step in steps]

    def path(self, node: ArtifactRef) -> Path:
        """Where a published artifact's files are."""
        return self.store.path(node)

    def _would_run(self, step: Step, reason: str, details: Sequence[str] = ()) -> Pending:
        self.rows.append(PlanRow(step.title, step.name, "run", reason, tuple(details)))
        return Pending(step.title)

    def _why(self, step: Step) -> tuple[str, list[str]]:
        """Compare a request that the store cannot answer with the newest artifact of its kind and name."""
        try:
            newest = self.store.newest(step.stage.kind, step.name)
        except StoreError:
            return "the newest of that name cannot be read", []
        if newest is None:
            return "nothing of that name yet", []
        payload = self.store.fingerprint_payload(step.request())
        differences = payload_differences(newest.payload, payload)
        if not differences:
            return "its artifact is gone or damaged", []
        return "differs from the newest", [f"{d.field}: {d.a} → {d.b}" for d in differences]


def plan_profile(profile: Profile, store: Store, *, rehash: bool = False) -> list[PlanRow]:
    """Return what a run of `profile` on `store` would do, one row a task in the order of the DAG.

    Raises:
        SourceError: a source matches nothing, or a file twice.
    """
    sources = resolve_sources(profile, store, rehash=rehash)
    executor = PlanningExecutor(store)
    Composition(profile, executor, sources).build()
    return executor.rows
