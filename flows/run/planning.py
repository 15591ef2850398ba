"""Plans a run: determines which tasks are cached, which would run, and why.

A plan walks the same DAG as a run. Tasks whose inputs are in the store can be looked up, because their
fingerprints depend on the digests of the inputs. If an input does not exist yet, its digest is unknown, and
the tasks that depend on it are pending. They may turn out to be cached, if the input's content is the same as
before. The reason why a task would run is the difference, field by field, between the fingerprint payload of
its request and that of the newest artifact of the same kind and name.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from tokmill.flows.figures import size
from tokmill.flows.profile import Profile
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Dag, Node, Pending, Step, pending, walk
from tokmill.flows.run.remarks import remarks_on
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.core.errors import StoreError, TaskError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store, payload_differences

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanRow:
    """One task of a plan.

    Attributes:
        task: the title that people see, e.g. `encode[english/3]`.
        name: the artifact's name.
        action: `cached`, or `run` if the artifact does not exist.
        reason: why it would run; empty if it is cached.
        details: the fields that differ from the newest artifact of that kind and name, `field: old → new`.
    """

    task: str
    name: str
    action: Literal["cached", "run"]
    reason: str = ""
    details: Sequence[str] = ()


class _Planner:
    """Looks steps up in the store without making anything."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rows: list[PlanRow] = []

    def look_up(self, step: Step) -> Node:
        """Return the artifact of a step if the store has it, else a pending one."""
        if waiting := pending(step):
            return self._would_run(step, f"waits for {waiting[0].task}", self._needs(step))
        ref = self.store.lookup(step.request())
        if ref is None:
            reason, details = self._why(step)
            return self._would_run(step, reason, [*details, *self._needs(step)])
        self.rows.append(PlanRow(step.title, step.name, "cached"))
        return ref

    def _would_run(self, step: Step, reason: str, details: Sequence[str] = ()) -> Pending:
        self.rows.append(PlanRow(step.title, step.name, "run", reason, tuple(details)))
        return Pending(step.title)

    def _needs(self, step: Step) -> list[str]:
        """Say what memory a step needs, if its stage can tell that from the inputs that exist."""
        if step.stage.memory is None:
            return []
        known = {
            role: self.store.place(given)
            for role, given in step.inputs.items()
            if isinstance(given, ArtifactRef)
        }
        try:
            needed = step.stage.memory(step.params, known)
        except TaskError:
            return []  # an input is broken: the run says so
        return [] if needed is None else [f"needs at most about {size(needed)} of memory"]

    def _why(self, step: Step) -> tuple[str, list[str]]:
        """Compare the request of a missing artifact with the newest artifact of its kind and name."""
        try:
            newest = self.store.newest(step.stage.kind, step.name)
        except StoreError:
            return "the newest artifact of that name cannot be read", []
        if newest is None:
            return "no artifact of that name yet", []
        payload = self.store.fingerprint_payload(step.request())
        differences = payload_differences(newest.payload, payload)
        if not differences:
            return "its artifact is gone or damaged", []
        return "differs from the newest artifact", [f"{d.field}: {d.a} → {d.b}" for d in differences]


def plan_profile(
    profile: Profile, store: Store, *, rehash: bool = False, until: Collection[str] = ()
) -> list[PlanRow]:
    """Return what a run of `profile` on `store` would do, one row per task in the order of the DAG.

    Remarks on the text are logged as warnings.

    Raises:
        SourceError: a source matches no file, or one file twice.
        GateError: the gate of the published audit failed, and `audit.on_failure` is "fail".
    """
    sources = resolve_sources(profile, store, rehash=rehash)
    rows = plan_dag(compose(profile, sources, store.place, until), store)
    for remark in remarks_on(profile, sources):
        _LOG.warning("plan: %s", remark)
    return rows


def plan_dag(dag: Dag, store: Store) -> list[PlanRow]:
    """Return what a run of a DAG on `store` would do, one row per task."""
    planner = _Planner(store)
    walk(dag.jobs, planner.look_up)
    return planner.rows
