"""Copies artifacts, runs and aliases from one store to another: `push` and `pull`, the same both ways.

    artifacts   inputs first, each as it is published anywhere: files beside their place, compared with the
                digests in the record as they arrive, then the record, and a rename (in a bucket: the record
                last)
    labels      an artifact keeps its label if the other store has not given it to another one; else it gets
                the next one there, in its record, too
    aliases     come along unless the other store has them for something else; one that is named is moved
    runs        with their tags and notes; one that is still going on stays, and one that was tried again
                since it was copied replaces its copy
    removed     of an artifact that is no longer in the first store, the tombstone comes along

What else the other store has already stays as it is. So a push that was killed is repeated, and only the
rest is copied; a store is whole at every moment. Sizes of files are compared, as before every reuse: what is
damaged there is set aside, and copied. An artifact that the other store has with other content is left alone,
and named. The first store may be read-only.
"""

import errno
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.digest import FileEntry, digest_file
from tokmill.tasks.store.disk import DamagedError, ProcessLock, holding, reported_as, sync_path
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.publish import commit
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.remote import remote_of
from tokmill.tasks.store.runs import Run, is_remark, read_remark, read_run, run_path
from tokmill.tasks.store.store import Store
from tokmill.tasks.store.tombstones import Tombstone, tombstone
from tokmill.tasks.store.verify import Problem, examine
from tokmill.tasks.store.workspace import workspace
from tokmill.tokenizer.core.stopping import raise_if_stopped

_MOST_BYTES = 256 << 20
_BLOCK = 1 << 20
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

What: TypeAlias = Literal["copy", "there", "other content", "removed"]
"""What is to be done with an artifact: it is copied; nothing, since it is there, or is there with other
content; or its tombstone is copied, since it is no longer in the first store."""


class Named(NamedTuple):
    """An alias or a label of an artifact, and whether an alias may be moved from another one there."""

    kind: str
    name: str
    alias: str
    fingerprint: str
    is_asked_for: bool = False


@dataclass(frozen=True)
class Cargo:
    """What is to be copied.

    Attributes:
        records: inputs first.
        runs: ids.
        aliases: of these artifacts.
        labels: of these artifacts under other names than that in their records.
    """

    records: Sequence[Record]
    runs: Sequence[str] = ()
    aliases: Sequence[Named] = ()
    labels: Sequence[Named] = ()


@dataclass
class Moved:
    """What was copied, or would be.

    Attributes:
        artifacts: each record, and what became of it.
        relabelled: artifacts whose label was taken: the name here, and there.
        damaged: what was wrong with artifacts there that are copied again.
        restored: artifacts that had been removed from the other store, by their tombstones there.
        runs, aliases: what was copied of them.
        kept: aliases that the other store has for another artifact.
    """

    artifacts: list[tuple[Record, What]] = field(default_factory=list)
    relabelled: list[tuple[str, str]] = field(default_factory=list)
    damaged: list[Problem] = field(default_factory=list)
    restored: list[Tombstone] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def of(self, what: What) -> list[Record]:
        """Return the records with which the same was done."""
        return [record for record, done in self.artifacts if done == what]

    @property
    def num_bytes(self) -> int:
        """The bytes of what is copied."""
        return sum(record.num_bytes for record in self.of("copy"))


def move(
    source: Store, target: Store, cargo: Cargo, report: Callable[[str], None], *, dry_run: bool = False
) -> Moved:
    """Copy artifacts, runs and aliases."""
    moved = Moved()
    source.refresh()
    target.refresh()
    moved.artifacts += [(record, _what(source, target, record, moved.damaged)) for record in cargo.records]
    buried = (target.tombstone(record.kind, record.fingerprint) for record in moved.of("copy"))
    moved.restored += [left for left in buried if left is not None]
    if dry_run:
        _names(target, cargo, moved, dry_run=True)
        return moved
    fingerprints = [record.fingerprint for record in cargo.records]
    with _kept(source, fingerprints), target.at_work("push") as there:
        there.hold(fingerprints)
        for record, what in moved.artifacts:
            raise_if_stopped()
            if what == "copy":
                report(f"{record.reference}: {record.num_bytes:,} bytes")
                _send(source, target, record, moved)
            elif what == "removed":
                _bury(source, target, record)
        _names(target, cargo, moved, dry_run=False)
        _runs(source, target, cargo.runs, moved)
    return moved


@contextmanager
def _kept(source: Store, fingerprints: Sequence[str]) -> Iterator[None]:
    """Protect what is copied from collectors, unless the store can only be read.

    What somebody else removes from that meanwhile is missed when it is copied.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(source.at_work("push")).hold(fingerprints)
        except StoreError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _READ_ONLY:
                raise
        yield


def _what(source: Store, target: Store, record: Record, damaged: list[Problem]) -> What:
    place = target.layout.artifact(record.kind, record.fingerprint)
    is_here = source.holds(record.ref)
    if (place / RECORD_FILE).is_file():
        found = _examined(place) if is_here else target.read(record.kind, record.fingerprint)
        if isinstance(found, Record):
            return "there" if found.content_digest == record.content_digest else "other content"
        damaged.append(found)
    return "copy" if is_here else "removed"


def _examined(place: Path) -> Record | Problem:
    """Return the record of an artifact, or the first problem, by sizes: here, and in the remote."""
    found = examine(place, "sizes")
    if isinstance(found, Record) and (remote := remote_of(place)):
        damages = remote.damages(remote.name_of(place), full=False)
        return next((Problem(found.reference, *damage) for damage in damages), found)
    return found


def _send(source: Store, target: Store, record: Record, moved: Moved) -> None:
    """Publish a copy of an artifact, unless somebody else has published it by now."""
    place = target.layout.artifact(record.kind, record.fingerprint)
    lock = ProcessLock(target.layout.locks / f"{record.kind}-{record.fingerprint}.lock")
    with holding(lock, lambda who: None), reported_as(f"{record.reference} cannot be copied"):
        if target.holds(record.ref):
            found = _examined(place)
            if isinstance(found, Record):
                return
            target.set_aside(place, found)
        label = target.names.find(record.kind, record.name, record.fingerprint)
        if label is None and target.names.restore(record.kind, record.name, record.label, record.fingerprint):
            label = record.label
        label = label or target.names.reserve(record.kind, record.name, record.fingerprint)
        copy = record.model_copy(update={"label": label})
        if label != record.label:
            moved.relabelled.append((record.reference, copy.reference))
        folder = _pulled(source, record)
        with workspace(target.layout) as out:
            _copy_files(folder, out, copy)
            commit(target.layout, out, copy)
    label_path = target.names.label_path(record.kind, record.name, label)
    target.catalog.register_publication(place / RECORD_FILE, label_path)


def _pulled(source: Store, record: Record) -> Path:
    """Return the folder of an artifact with local files; damage is told, but nothing is set aside here."""
    folder = source.layout.artifact(record.kind, record.fingerprint)
    source.record(record.ref)
    try:
        if remote := remote_of(folder):
            remote.pull(remote.name_of(folder))
    except DamagedError as error:
        raise StoreError(
            f"{record.reference}: {error.filename} {error.strerror}; push it to {source.location} from a "
            "store that has it sound, or make it again"
        ) from error
    return folder


def _copy_files(folder: Path, out: Path, record: Record) -> None:
    """Copy files into an empty folder, and compare each copy with its digest; then flush the folders."""
    for entry in record.files:
        raise_if_stopped()
        _copy_file(folder / entry.path, out / entry.path, entry, record)
    for each in (out, *(path for path in out.rglob("*") if path.is_dir())):
        sync_path(each)


def _copy_file(file: Path, copy: Path, entry: FileEntry, record: Record) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    with disk.opened(file) as given, copy.open("wb") as out:
        shutil.copyfileobj(given, out, _BLOCK)
    sync_path(copy)
    if digest_file(copy) != entry.digest:
        raise StoreError(
            f"{record.reference}: {entry.path} is not what was published; `tokmill store verify` examines "
            "the store, and a run makes it again"
        )


def _bury(source: Store, target: Store, record: Record) -> None:
    """Copy the tombstone of a removed artifact, which keeps its record."""
    place = source.layout.removed / record.kind
    name = f"{source.layout.artifact(record.kind, record.fingerprint).name}.json"
    if tombstone(target.layout, record.kind, record.fingerprint) is None and (place / name).is_file():
        with reported_as(f"the tombstone of {record.reference} cannot be copied"):
            shared.create(target.layout.removed / record.kind / name, disk.read(place / name, _MOST_BYTES))


def _names(target: Store, cargo: Cargo, moved: Moved, *, dry_run: bool) -> None:
    """Give labels and aliases, unless they are those of other artifacts and were not asked for."""
    for one in () if dry_run else cargo.labels:
        target.names.adopt(one.kind, one.name, one.alias, one.fingerprint)
    for one in cargo.aliases:
        said = f"{one.kind}/{one.name}@{one.alias}"
        there = target.names.aliases(one.kind, one.name).get(one.alias)
        if there == one.fingerprint:
            continue
        if there is not None and not one.is_asked_for:
            moved.kept.append(said)
        elif dry_run or _alias_given(target, one):
            moved.aliases.append(said)
        elif target.names.aliases(one.kind, one.name).get(one.alias) != one.fingerprint:
            moved.kept.append(said)


def _alias_given(target: Store, one: Named) -> bool:
    """Give an alias; whether that was done, since somebody else may have given it meanwhile."""
    give = target.names.tag if one.is_asked_for else target.names.tag_if_free
    path = give(one.kind, one.name, one.alias, one.fingerprint)
    if path is not None:
        target.catalog.register(path)
    return path is not None


def _runs(source: Store, target: Store, runs: Iterable[str], moved: Moved) -> None:
    """Copy runs that have ended, with the remarks on them."""
    for run_id in runs:
        path, copy = (run_path(store.layout.runs, run_id) for store in (source, target))
        run = read_run(path)
        if run.state == "running":
            continue
        written = list(_new_files(_remarks(source, run_id), source, target))
        if not copy.is_file() or _goes_on(read_run(copy), run):
            moved.runs.append(run_id)
            with reported_as(f"run {run_id} cannot be copied"):
                shared.replace(copy, disk.read(path, _MOST_BYTES))
            written.append(copy)
        if written:
            target.catalog.register(*written)


def _goes_on(copied: Run, run: Run) -> bool:
    """Whether a run is one that was copied, with attempts since then."""
    before, attempts = copied.as_earlier(), run.as_earlier()
    return len(attempts) > len(before) and attempts[: len(before)] == before


def _remarks(store: Store, run_id: str) -> list[Path]:
    folder = store.layout.annotations
    names = (entry.name for entry in disk.entries(folder))
    return [folder / name for name in sorted(names) if is_remark(name) and name.startswith(f"{run_id}.")]


def _new_files(files: Iterable[Path], source: Store, target: Store) -> Iterable[Path]:
    """Copy remarks that the other store does not have; yield the copies."""
    for file in files:
        copy = target.root / file.relative_to(source.root)
        if not copy.is_file():
            read_remark(file)
            with reported_as(f"{file.name} cannot be copied"):
                shared.replace(copy, disk.read(file, _MOST_BYTES))
            yield copy
