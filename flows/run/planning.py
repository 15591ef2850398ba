"""Plans a run: determines which tasks are cached, which would run, and why.

A plan walks the same DAG as a run. Tasks whose inputs are in the store can be looked up, because their
fingerprints depend on the digests of the inputs. If an input does not exist yet, its digest is unknown, and
the tasks that depend on it are pending. They may turn out to be cached, if the input's content is the same as
before. The reason why a task would run is the difference, field by field, between the fingerprint payload of
its request and that of the newest artifact of the same kind and name.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
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
from tokmill.tasks.formats.text.documents import Bytes, FileBatch, Ints
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import Location, located
from tokmill.tasks.store import Store, fingerprint_payload, payload_differences
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.splitting.marks import describe, firsts_of_counts

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
        payload = fingerprint_payload(step.request())
        differences = payload_differences(newest.payload, payload)
        if not differences:
            return "its artifact is gone or damaged", []
        return "differs from the newest artifact", [f"{d.field}: {d.a} → {d.b}" for d in differences]


def plan_target(profile: Profile, target: Target, store: Store, *, rehash: bool = False) -> list[PlanRow]:
    """Return what a run of `profile` on `store` would do, one row per task in the order of the DAG.

    Remarks on the text are logged as warnings.

    Raises:
        SourceError: a source matches no file, or one file twice.
        GateError: the gate of the published audit failed, and `audit.on_failure` is "fail".
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


_LOOK_BYTES = 256 << 10
_MARK = regex.compile(r"\p{M}")


def remarks_on(profile: Profile, sources: Sources) -> list[str]:
    """Return a sentence for each source of which the split pattern cuts marks from their letters."""
    training = profile.training()
    if training is None or training.mode == "sentencepiece":
        return []
    first = {file.value["source"]: file.value for file in reversed(sources.files)}
    found = []
    for source, file in sorted(first.items()):
        options = profile.sources[source].read_options()
        firsts = _firsts(located(file["path"]), options, training)
        if remark := describe(training.split_pattern, firsts):
            found.append(f"source {source}: {remark}")
    return found


def _firsts(path: Location, options: ReadOptions, cut: CountParams) -> Counter[str]:
    """Count the characters that the pre-tokens at the beginning of a file begin with; none without marks."""
    try:
        texts = [_looked_at(batch) for batch in _beginning(path, options)]
    except (TaskError, OSError):
        return Counter()
    if not any(_MARK.search(data.tobytes().decode()) for data, _ in texts):
        return Counter()  # which is quick: compiled patterns need numba
    splitter, firsts = compile_pattern(cut.split_pattern, cut.digits), Counter[str]()
    for data, offsets in texts:
        pretokens = splitter.split(data, offsets)
        bounds = np.append(pretokens.starts, pretokens.ends[-1:])  # they follow each other
        firsts += firsts_of_counts(data, bounds, np.ones(len(bounds) - 1, dtype=np.uint64))
    return firsts


def _looked_at(batch: FileBatch) -> tuple[Bytes, Ints]:
    """Return the text that is looked at: all of it, or the beginning of a single long document."""
    if len(batch.data) <= _LOOK_BYTES:
        return batch.data, batch.offsets
    data = _first_characters(batch.data, _LOOK_BYTES)
    return data, np.array([0, len(data)])


def _beginning(path: Location, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the first documents of a file, and no more of a batch than is looked at."""
    left = _LOOK_BYTES
    for batch in read_file_batches(path, format_of(path, options), options):
        stop = int(np.searchsorted(batch.offsets, left, side="right")) - 1
        part = batch.cut(0, min(max(stop, 1), len(batch)))
        if len(part):
            yield part
        left -= len(part.data)
        if left <= 0 or len(part) < len(batch):
            return


def _first_characters(data: Bytes, size: int) -> Bytes:
    """Return at most `size` bytes of UTF-8, and no part of a character."""
    while data[size] & 0xC0 == 0x80:
        size -= 1
    return data[:size]
