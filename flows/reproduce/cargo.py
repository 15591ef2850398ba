"""What `tokmill push` and `pull` copy: what is named, with all that it was made from, or the whole store."""

from collections.abc import Iterable, Sequence

from tokmill.flows.reproduce.known import StoreRecords, Subject, subject_in
from tokmill.tasks.store import Store, disk
from tokmill.tasks.store.push import Cargo, Named
from tokmill.tasks.store.record import Record, read_record


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
