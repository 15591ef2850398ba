"""What is known of artifacts that are to be made again: their records, from a store or from a bundle."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tokmill.flows.errors import UsageError
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store, disk
from tokmill.tasks.store.layout import PREFIX_CHARS
from tokmill.tasks.store.push import Cargo, Named
from tokmill.tasks.store.record import InputEntry, Record, read_record
from tokmill.tasks.store.run_queries import find_run
from tokmill.tasks.store.runs import Run

CORPUS = "corpus"
TEXT_ROLES = frozenset({"shard", "text"})
_HEX = re.compile(r"[0-9a-f]{6,64}")


class Records(Protocol):
    """Where records come from."""

    def record(self, kind: str, fingerprint: str) -> Record:
        """Return a record; raises StoreError if there is none."""


@dataclass(frozen=True)
class StoreRecords:
    """Records of a store, of removed artifacts too."""

    store: Store

    def record(self, kind: str, fingerprint: str) -> Record:
        """Return a record; raises StoreError if there is none."""
        return self.store.past(kind, fingerprint)


@dataclass(frozen=True)
class Subject:
    """What is to be made again.

    Attributes:
        name: of it, for people: `run 1b2c…`, `tokenizer/english@v1`.
        records: of the artifacts in question, and where records come from.
        targets: the records that were asked for.
        run: the run, if it is one.
    """

    name: str
    records: Records
    targets: Sequence[Record]
    run: Run | None = None

    def lineage(self) -> list[Record]:
        """Return the records of everything that the targets were made from, and theirs, inputs first.

        The text of a shard is listed by a corpus. Where none is among them, as for a shard alone, it is the
        one from which the shard was first made.

        Raises:
            StoreError: a record is not there.
        """
        found: dict[str, Record] = {}
        for target in self.targets:
            self._add(target, found)
        texts = [entry for record in found.values() for entry in record.inputs if is_text(entry)]
        if texts and not any(record.kind == CORPUS for record in found.values()):
            first: dict[str, Record] = {}
            for fingerprint in dict.fromkeys(_corpus_of(entry) for entry in texts):
                self._add(self.records.record(CORPUS, fingerprint), first)
            found = first | found
        return list(found.values())

    def _add(self, target: Record, found: dict[str, Record]) -> None:
        way = {target.fingerprint: (target, iter(target.inputs))}
        while way:
            record, inputs = way[next(reversed(way))]
            entry = next(inputs, None)
            if entry is None:
                found.setdefault(record.fingerprint, record)
                way.popitem()
            elif entry.fingerprint in way:
                raise StoreError(
                    f"{record.reference} was made from itself, by its record; tokmill wrote no such record"
                )
            elif entry.kind is not None and entry.fingerprint is not None and entry.fingerprint not in found:
                made_from = self._input(record, entry.kind, entry.fingerprint)
                way[entry.fingerprint] = made_from, iter(made_from.inputs)

    def _input(self, record: Record, kind: str, fingerprint: str) -> Record:
        try:
            return self.records.record(kind, fingerprint)
        except StoreError as error:
            raise StoreError(
                f"{record.reference} was made from {kind} {fingerprint[:PREFIX_CHARS]}, whose record cannot "
                f"be had: {error}; get it from a store that has it (`tokmill store pull`), or from a backup"
            ) from error


def inputs_of(record: Record) -> list[str]:
    """Return the fingerprints of the artifacts that an artifact was made from."""
    return [entry.fingerprint for entry in record.inputs if entry.fingerprint is not None]


def is_text(entry: InputEntry) -> bool:
    """Whether an input is the text of a shard, which a corpus lists."""
    return entry.kind is None and entry.role in TEXT_ROLES


def _corpus_of(entry: InputEntry) -> str:
    if not isinstance(entry.about, dict) or "corpus" not in entry.about:
        raise StoreError(
            f"the record of text {entry.digest[:16]} was written before records named its corpus; name an "
            "artifact that was made from the corpus, or the run"
        )
    return str(entry.about["corpus"])


def subject_in(store: Store, reference: str, *, removed: bool = False) -> Subject:
    """Return what a reference names in a store: an artifact, or a run (`tasks.store.run_queries`).

    Args:
        store: the store.
        reference: of the artifact or run.
        removed: whether the artifact may be one that was removed, of which the record is left.

    Raises:
        UsageError: there is neither, or what is left of a removed artifact is damaged.
    """
    try:
        if "/" in reference:
            return subject_of(store, [store.resolve(reference, removed=removed)])
        return subject_of_run(store, find_run(store, reference))
    except StoreError as error:
        if not _HEX.fullmatch(reference):
            raise UsageError(str(error)) from error
    try:
        return subject_of(store, [store.resolve(reference, removed=removed)])
    except StoreError as error:
        raise UsageError(f"{error}; nor is it the beginning of a run's id") from error


def subject_of(store: Store, refs: Sequence[ArtifactRef]) -> Subject:
    """Return artifacts as a subject.

    Raises:
        StoreError: a record is not there.
    """
    targets = [store.past_record(ref) for ref in refs]
    name = targets[0].reference if len(targets) == 1 else f"{len(targets)} artifacts"
    return Subject(name, StoreRecords(store), targets)


def subject_of_run(store: Store, run: Run) -> Subject:
    """Return a run as a subject: all its artifacts.

    Raises:
        UsageError: the run has none.
        StoreError: a record is not there.
    """
    if not run.artifacts:
        raise UsageError(f"run {run.run_id} ({run.state}) has no artifacts to make again")
    refs = list({each.ref.fingerprint: each.ref for each in run.artifacts}.values())
    targets = [_of_run(store, ref) for ref in refs]
    return Subject(f"run {run.run_id}", StoreRecords(store), targets, run)


def _of_run(store: Store, ref: ArtifactRef) -> Record:
    """Return the record of a run's artifact; if that is lost, since it was refreshed, the present one."""
    try:
        return store.past_record(ref)
    except StoreError:
        return store.past(ref.kind, ref.fingerprint)


def as_json(value: Any) -> bytes:
    """Return a value as JSON of one form: sorted keys, a line per item."""
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).encode() + b"\n"


def cargo_of(store: Store, references: Sequence[str]) -> Cargo:
    """Return artifacts and runs with all that they were made from; everything if nothing is named.

    Raises:
        UsageError: there is no artifact or run of a name.
        StoreError: a record is missing or damaged.
    """
    store.refresh()
    subjects = [subject_in(store, reference) for reference in references] if references else [_all(store)]
    records: dict[str, Record] = {}
    for subject in subjects:
        records |= {
            record.fingerprint: record for record in subject.lineage() if record.fingerprint not in records
        }
    runs = [subject.run.run_id for subject in subjects if subject.run is not None]
    asked = {reference.partition("@")[::2] for reference in references if "@" in reference}
    aliases, labels = _names(store, records, asked)
    return Cargo(list(records.values()), runs if references else list(_run_ids(store)), aliases, labels)


def _all(store: Store) -> Subject:
    return Subject(
        "the store", StoreRecords(store), [read_record(place) for place in store.layout.artifacts()]
    )


def _run_ids(store: Store) -> Iterable[str]:
    names = sorted(entry.name for entry in disk.entries(store.layout.runs))
    return (
        name.removesuffix(".json") for name in names if name.endswith(".json") and not name.startswith(".")
    )


def _names(
    store: Store, records: dict[str, Record], asked: set[tuple[str, str]]
) -> tuple[list[Named], list[Named]]:
    """Return the aliases of artifacts, and their labels under other names than their own."""
    aliases, labels = list[Named](), list[Named]()
    for reference in store.names.references():
        kind, _, name = reference.partition("/")
        for alias, owner in store.names.aliases(kind, name).items():
            if owner in records:
                aliases.append(Named(kind, name, alias, owner, (reference, alias) in asked))
        for label, owner in store.names.labels(kind, name).items():
            if owner in records and records[owner].name != name:
                labels.append(Named(kind, name, label, owner))
    return aliases, labels
