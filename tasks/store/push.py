"""Copies artifacts, runs and aliases from one store to another: `push` and `pull`, the same both ways.

Inputs come first, and what is there stays, so a push that was killed is repeated. Labels are kept if they are
free there, aliases do not move unless asked; what is damaged there is set aside. The source may be read-only.
"""

import errno
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.build import commit, sync_folders
from tokmill.tasks.store.digest import FileEntry, digest_file
from tokmill.tasks.store.disk import DamagedError, holding, reported_as, sync_path
from tokmill.tasks.store.layout import workspace
from tokmill.tasks.store.record import Record, Tombstone, tombstone, tombstone_path
from tokmill.tasks.store.remote import pull, remote_damages
from tokmill.tasks.store.runs import read_remark, read_run, remark_paths, run_path
from tokmill.tasks.store.verify import Problem, examine
from tokmill.tokenizer.core.stopping import raise_if_stopped

if TYPE_CHECKING:
    from tokmill.tasks.store.store import Store

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
    """What is to be copied."""

    records: Sequence[Record]  # inputs first
    runs: Sequence[str] = ()  # ids
    aliases: Sequence[Named] = ()  # of these artifacts
    labels: Sequence[Named] = ()  # of these artifacts under other names than that in their records


@dataclass
class Moved:
    """What was copied, or would be.

    Attributes:
        relabelled: artifacts whose label was taken: the name here, and there.
        damaged: what was wrong with artifacts there that are copied again.
        restored: artifacts that had been removed from the other store, by their tombstones there.
        runs, aliases: what was copied of them.
    """

    artifacts: list[tuple[Record, What]] = field(default_factory=list)  # each record, and what became of it
    relabelled: list[tuple[str, str]] = field(default_factory=list)
    damaged: list[Problem] = field(default_factory=list)
    restored: list[Tombstone] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # aliases that the other store has for another artifact

    def of(self, what: What) -> list[Record]:
        """Return the records with which the same was done."""
        return [record for record, done in self.artifacts if done == what]

    @property
    def num_bytes(self) -> int:
        """The bytes of what is copied."""
        return sum(record.num_bytes for record in self.of("copy"))


def move(
    source: "Store", target: "Store", cargo: Cargo, report: Callable[[str], None], *, dry_run: bool = False
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
    fingerprints, both = [record.fingerprint for record in cargo.records], (source, target)
    with _kept(source, fingerprints), target.at_work("push") as there:
        there.hold(fingerprints)
        for record, what in moved.artifacts:
            raise_if_stopped()
            if what == "copy":
                report(f"{record.reference}: {record.num_bytes:,} bytes")
                _send(source, target, record, moved)
            elif what == "removed" and tombstone(target.layout, record.kind, record.fingerprint) is None:
                _copy_small(
                    *(tombstone_path(store.layout, record.kind, record.fingerprint) for store in both)
                )
        _names(target, cargo, moved, dry_run=False)
        _runs(source, target, cargo.runs, moved)
    return moved


@contextmanager
def _kept(source: "Store", fingerprints: Sequence[str]) -> Iterator[None]:
    """Protect what is copied from collectors, unless the store can only be read."""
    with ExitStack() as stack:
        try:
            stack.enter_context(source.at_work("push")).hold(fingerprints)
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) not in _READ_ONLY:
                raise
        yield


def _what(source: "Store", target: "Store", record: Record, damaged: list[Problem]) -> What:
    is_here = source.holds(record.ref)
    if target.holds(record.ref):
        found = _examined(target, record) if is_here else target.read(record.kind, record.fingerprint)
        if isinstance(found, Record):
            return "there" if found.content_digest == record.content_digest else "other content"
        damaged.append(found)
    return "copy" if is_here else "removed"


def _examined(target: "Store", record: Record) -> Record | Problem:
    """Return the record of an artifact, or the first problem, by sizes: here, and in the remote."""
    place = target.layout.artifact(record.kind, record.fingerprint)
    found = examine(place, "sizes")
    if isinstance(found, Record):
        damages = remote_damages(place, full=False)
        return next((Problem(found.reference, *damage) for damage in damages), found)
    return found


def _send(source: "Store", target: "Store", record: Record, moved: Moved) -> None:
    name = record.kind, record.name
    lock = target.layout.lock_of(record.kind, record.fingerprint)
    with holding(lock, lambda who: None), reported_as(f"{record.reference} cannot be copied"):
        if target.holds(record.ref):
            found = _examined(target, record)
            if isinstance(found, Record):
                return
            place = target.layout.artifact(record.kind, record.fingerprint)
            target.builder(report=lambda line: None).set_aside(place, found)
        target.names.adopt(*name, record.label, record.fingerprint)
        copy = record.model_copy(update={"label": target.names.find(*name, record.fingerprint)})
        if copy.label != record.label:
            moved.relabelled.append((record.reference, copy.reference))
        folder = _pulled(source, record)
        with workspace(target.layout) as out:
            for entry in record.files:
                _copy_file(folder / entry.path, out / entry.path, entry, record)
            sync_folders(out)
            commit(target.layout, out, copy)


def _pulled(source: "Store", record: Record) -> Path:
    """Return the folder of an artifact with local files; damage is told, but nothing is set aside here."""
    folder = source.layout.artifact(record.kind, record.fingerprint)
    source.record(record.ref)
    try:
        pull(folder)
    except DamagedError as error:
        raise StoreError(
            f"{record.reference}: {error.filename} {error.strerror}; push it to {source.location} from a "
            "store that has it sound, or make it again"
        ) from error
    return folder


def _copy_file(file: Path, copy: Path, entry: FileEntry, record: Record) -> None:
    raise_if_stopped()
    copy.parent.mkdir(parents=True, exist_ok=True)
    with disk.opened(file) as source, copy.open("wb") as out:
        shutil.copyfileobj(source, out, _BLOCK)
    sync_path(copy)
    if digest_file(copy) != entry.digest:
        raise StoreError(
            f"{record.reference}: {entry.path} is not what was published; `tokmill store verify` examines "
            "the store, and a run makes it again"
        )


def _copy_small(file: Path, copy: Path) -> None:
    with reported_as(f"{file.name} cannot be copied"):
        shared.replace(copy, disk.read(file, shared.MOST_BYTES))


def _names(target: "Store", cargo: Cargo, moved: Moved, *, dry_run: bool) -> None:
    for one in () if dry_run else cargo.labels:
        target.names.adopt(one.kind, one.name, one.alias, one.fingerprint)
    for one in cargo.aliases:
        said = f"{one.kind}/{one.name}@{one.alias}"
        owner = target.names.aliases(one.kind, one.name).get(one.alias)
        if owner == one.fingerprint:
            continue
        may_move = owner is None or one.is_asked_for
        if may_move and not dry_run:  # unless somebody else gives it at this moment
            may_move = target.names.tag(one.kind, one.name, one.alias, one.fingerprint, move=one.is_asked_for)
        (moved.aliases if may_move else moved.kept).append(said)


def _runs(source: "Store", target: "Store", runs: Iterable[str], moved: Moved) -> None:
    for run_id in runs:
        path, copy = (run_path(store.layout.runs, run_id) for store in (source, target))
        run = read_run(path)
        if run.state == "running":
            continue
        for file in remark_paths(source.layout, run_id):
            remark = target.layout.annotations / file.name
            if not remark.is_file():
                read_remark(file)
                _copy_small(file, remark)
        attempts, copied = run.as_earlier(), read_run(copy).as_earlier() if copy.is_file() else []
        if len(attempts) > len(copied) and attempts[: len(copied)] == copied:
            moved.runs.append(run_id)
            _copy_small(path, copy)
