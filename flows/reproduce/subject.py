"""What is known of artifacts that are to be made again: their records, from a store or from a bundle."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tokmill.flows.errors import UsageError
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store, disk
from tokmill.tasks.store.layout import PREFIX_CHARS
from tokmill.tasks.store.push import Cargo, Named
from tokmill.tasks.store.record import InputEntry, Record, read_record
from tokmill.tasks.store.references import find_run
from tokmill.tasks.store.runs import Run

CORPUS = "corpus"
TEXT_ROLES = frozenset({"shard", "text"})
_HEX = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True)
class Subject:
    """What is to be made again."""

    name: str  # of it, for people: `run 1b2c…`, `tokenizer/english@v1`
    record: Callable[[str, str], Record]
    """Returns a record by kind and fingerprint; raises StoreError if there is none."""
    targets: Sequence[Record]  # the records that were asked for
    run: Run | None = None  # the run, if it is one

    def lineage(self) -> list[Record]:
        """Return the records of everything that the targets were made from, and theirs, inputs first.

        The text of a shard is listed by a corpus: of those here, or the one from which it was first made.
        """
        found: dict[str, Record] = {}
        for target in self.targets:
            self._add(target, found)
        texts = [entry for record in found.values() for entry in record.inputs if is_text(entry)]
        if texts and not any(record.kind == CORPUS for record in found.values()):
            first: dict[str, Record] = {}
            for fingerprint in dict.fromkeys(map(_corpus_of, texts)):
                self._add(self.record(CORPUS, fingerprint), first)
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
            return self.record(kind, fingerprint)
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
            f"no record names the corpus of text {entry.digest[:16]}; name an artifact that was made from it "
            "or the run"
        )
    return str(entry.about["corpus"])


def subject_in(store: Store, reference: str, *, removed: bool = False) -> Subject:
    """Return what a reference names in a store: an artifact, also a removed one, or a run."""

    def artifact() -> Subject:
        target = store.past_record(store.resolve(reference, removed=removed))
        return Subject(target.reference, store.past, [target])

    try:
        return artifact() if "/" in reference else subject_of_run(store, find_run(store, reference))
    except StoreError as error:
        if not _HEX.fullmatch(reference):
            raise UsageError(str(error)) from error
    try:
        return artifact()
    except StoreError as error:
        raise UsageError(f"{error}; nor is it the beginning of a run's id") from error


def subject_of_run(store: Store, run: Run) -> Subject:
    """Return a run as a subject: all its artifacts; of one that was refreshed since, what there is now."""
    if not run.artifacts:
        raise UsageError(f"run {run.run_id} ({run.state}) has no artifacts to make again")
    targets = []
    for ref in {each.ref.fingerprint: each.ref for each in run.artifacts}.values():
        try:
            targets.append(store.past_record(ref))
        except StoreError:
            targets.append(store.past(ref.kind, ref.fingerprint))
    return Subject(f"run {run.run_id}", store.past, targets, run)


def as_json(value: Any) -> bytes:
    """Return a value as JSON of one form: sorted keys, a line per item."""
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).encode() + b"\n"


def cargo_of(store: Store, references: Sequence[str]) -> Cargo:
    """Return artifacts and runs with all that they were made from; everything if nothing is named."""
    store.refresh()
    subjects = [subject_in(store, reference) for reference in references]
    run_ids = [subject.run.run_id for subject in subjects if subject.run is not None]
    if not references:
        subjects = [Subject("the store", store.past, list(map(read_record, store.layout.artifacts())))]
        names = sorted(entry.name for entry in disk.entries(store.layout.runs))
        run_ids = [name.removesuffix(".json") for name in names if re.fullmatch(r"[^.].*\.json", name)]
    records: dict[str, Record] = {}
    for subject in subjects:
        for record in subject.lineage():
            records.setdefault(record.fingerprint, record)
    named = {reference.partition("@")[::2] for reference in references if "@" in reference}
    aliases, labels = list[Named](), list[Named]()
    for reference in store.names.references():
        kind, _, name = reference.partition("/")
        for alias, owner in store.names.aliases(kind, name).items():
            if owner in records:
                aliases.append(Named(kind, name, alias, owner, (reference, alias) in named))
        for label, owner in store.names.labels(kind, name).items():
            if owner in records and records[owner].name != name:
                labels.append(Named(kind, name, label, owner))
    return Cargo(list(records.values()), run_ids, aliases, labels)
