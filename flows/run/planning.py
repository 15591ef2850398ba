"""What a run would do, without doing it: which tasks are cached, which would run, and why.

A plan walks the same DAG as a run. An artifact that the store holds gives its content digest to the tasks
that depend on it. If the store does not hold it, those tasks are pending: the digest is not known before the
artifact is made. It may turn out to be the same as before, and then they are cached after all. The reason why
a task would run is found by comparing the request's fingerprint payload, field by field, with that of the
newest artifact of the same kind and name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tokmill.flows.profile import Profile
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Node, Pending, Step, pending, walk
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.core.errors import StoreError
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


class _Planner:
    """Looks steps up in the store, and makes nothing."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rows: list[PlanRow] = []

    def look_up(self, step: Step) -> Node:
        """Return the artifact of a step if the store holds it; else what would have to be made."""
        if waiting := pending(step):
            return self._would_run(step, f"waits for {waiting[0].task}")
        ref = self.store.lookup(step.request())
        if ref is None:
            reason, details = self._why(step)
            return self._would_run(step, reason, details)
        self.rows.append(PlanRow(step.title, step.name, "cached"))
        return ref

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
    """Return what a run of `profile` on `store` would do, one row per task in the order of the DAG.

    Raises:
        SourceError: a source matches nothing, or a file twice.
        GateError: the audit is published and its gate failed, and the profile stops there.
    """
    planner = _Planner(store)
    walk(compose(profile, resolve_sources(profile, store, rehash=rehash), store.path).jobs, planner.look_up)
    return planner.rows
