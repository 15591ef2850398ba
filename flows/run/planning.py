"""Plans a run: determines which tasks are cached, which would run, and why.

A plan walks the DAG of a run. A task whose inputs do not exist is pending: they may turn out to be the same
as before. Why a task would run is the difference between its request and that of the newest artifact of the
same kind and name, field by field.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import regex

from tokmill.flows.figures import size
from tokmill.flows.profile import Profile
from tokmill.flows.run.dag import Dag, Node, Pending, Step, pending, walk
from tokmill.flows.run.sources import Sources, resolve_sources
from tokmill.flows.run.target import Target
from tokmill.tasks.core.errors import StoreError, TaskError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.count.stage import CountParams
from tokmill.tasks.formats.text.detection import format_of
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import Location, located
from tokmill.tasks.store import Store, fingerprint_payload, payload_differences
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.splitting.marks import describe, firsts_of_counts

_LOG = logging.getLogger(__name__)
_LOOK_BYTES = 256 << 10
_MARK = regex.compile(r"\p{M}")


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
        waiting = pending(step)
        ref = None if waiting else self.store.lookup(step.request())
        if ref is not None:
            self.rows.append(PlanRow(step.title, step.name, "cached"))
            return ref
        reason, details = (f"waits for {waiting[0].task}", []) if waiting else self._why(step)
        self.rows.append(PlanRow(step.title, step.name, "run", reason, (*details, *self._needs(step))))
        return Pending(step.title)

    def _needs(self, step: Step) -> list[str]:
        """Say what memory a step needs, if its stage can tell that from the inputs that exist."""
        refs = {role: given for role, given in step.inputs.items() if isinstance(given, ArtifactRef)}
        try:
            known = {role: self.store.place(ref) for role, ref in refs.items()}
            needed = step.stage.memory and step.stage.memory(step.params, known)
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
        differences = payload_differences(newest.payload, fingerprint_payload(step.request()))
        details = [f"{d.field}: {d.a} → {d.b}" for d in differences]
        return ("differs from the newest artifact" if details else "its artifact is gone or damaged"), details


def plan_target(profile: Profile, target: Target, store: Store, *, rehash: bool = False) -> list[PlanRow]:
    """Return what a run of `profile` on `store` would do, one row per task in the order of the DAG.

    Remarks on the text are logged as warnings.
    """
    sources = resolve_sources(profile, store, rehash=rehash)
    rows = plan_dag(target.compose(profile, store, sources), store)
    for remark in remarks_on(profile, sources):
        _LOG.warning("plan: %s", remark)
    return rows


def plan_dag(dag: Dag, store: Store) -> list[PlanRow]:
    """Return what a run of a DAG on `store` would do, one row per task."""
    planner = _Planner(store)
    walk(dag.jobs, planner.look_up)
    return planner.rows


def remarks_on(profile: Profile, sources: Sources) -> list[str]:
    """Return a sentence for each source of which the split pattern cuts marks from their letters."""
    training = profile.training()
    if training is None or training.mode == "sentencepiece":
        return []
    first = {file.value["source"]: file.value for file in reversed(sources.files)}
    remarks = []
    for source, file in sorted(first.items()):
        options = profile.sources[source].read_options()
        firsts = _firsts(located(file["path"]), options, training)
        if remark := describe(training.split_pattern, firsts):
            remarks.append(f"source {source}: {remark}")
    return remarks


def _firsts(path: Location, options: ReadOptions, cut: CountParams) -> Counter[str]:
    """Count the characters that the pre-tokens at the beginning of a file begin with; none without marks."""
    try:
        batch = next(iter(read_file_batches(path, format_of(path, options), options)), None)
    except (TaskError, OSError):
        batch = None
    if batch is None:
        return Counter()
    size = min(len(batch.data), _LOOK_BYTES)
    while size < len(batch.data) and batch.data[size] & 0xC0 == 0x80:  # within a character
        size -= 1
    data, offsets = batch.data[:size], np.append(batch.offsets[batch.offsets < size], size)
    if not _MARK.search(data.tobytes().decode()):
        return Counter()  # which is quick: compiled patterns need numba
    pretokens = compile_pattern(cut.split_pattern, cut.digits).split(data, offsets)
    bounds = np.append(pretokens.starts, pretokens.ends[-1:])  # they follow each other
    return firsts_of_counts(data, bounds, np.ones(len(bounds) - 1, dtype=np.uint64))
