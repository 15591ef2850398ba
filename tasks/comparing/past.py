"""Records of artifacts that are in the store, were set aside, or were removed: what explains them remains."""

from collections.abc import Iterator
from contextlib import suppress

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import InputEntry, Record, Store, disk, read_record
from tokmill.tasks.store.tombstones import tombstone


def record_of(store: Store, ref: ArtifactRef) -> Record | None:
    """Return the record of an artifact with this content, wherever it is; None if it is nowhere.

    An artifact that was made again with other content is set aside, and its record with it.
    """
    for record in _records(store, ref):
        if record.content_digest == ref.content_digest:
            return record
    return None


def input_record(store: Store, entry: InputEntry) -> Record | None:
    """Return the record of an artifact that another one was made from; None if it is nowhere."""
    ref = entry.ref
    return None if ref is None else record_of(store, ref)


def is_whole(store: Store, record: Record) -> bool:
    """Whether an artifact of this content is in the store, with its files."""
    try:
        return store.read(record.kind, record.fingerprint).content_digest == record.content_digest
    except StoreError:
        return False


def _records(store: Store, ref: ArtifactRef) -> Iterator[Record]:
    with suppress(StoreError):
        yield store.read(ref.kind, ref.fingerprint)
    with suppress(StoreError):
        left = tombstone(store.layout, ref.kind, ref.fingerprint)
        if left is not None:
            yield left.record
    place = store.layout.artifact(ref.kind, ref.fingerprint)
    folder = store.layout.damaged / ref.kind
    names = sorted(entry.name for entry in disk.entries(folder) if entry.name.startswith(f"{place.name}-"))
    for name in names:
        with suppress(StoreError):
            yield read_record(folder / name)
