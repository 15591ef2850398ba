"""Check that a published artifact still matches its record.

Sizes take one `stat` per file and are checked before every reuse; digests read every byte. The readers of
token shards and plans check the digest of a file when they open it (`check_files`), once per process. Files
that the record does not list (left by a file manager, say) are reported by `verify` but are not damage:
nothing refers to them.

Of a whole store, every artifact, label, alias and run is checked, and the catalog. That is compared with the
files without being updated first. A file that it has not seen yet is not a problem (the next query adds it).
A file that it has seen and that has changed, or no longer exists, is one: a published record never changes,
so it was changed by hand, or its artifact was made again.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from tokmill.tasks.core.errors import MachineError, StoreError, TaskError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.store import disk
from tokmill.tasks.store.digest import FileEntry
from tokmill.tasks.store.disk import DamagedError
from tokmill.tasks.store.indexing import sync_files
from tokmill.tasks.store.labels import named_files, read_name
from tokmill.tasks.store.layout import ALIASES, LABELS, PREFIX_CHARS, RECORD_FILE, Layout, printable
from tokmill.tasks.store.record import Record, contradictions, read_record
from tokmill.tasks.store.remote import PulledPath, remote_of
from tokmill.tasks.store.snapshot import attached, private
from tokmill.tasks.store.tables import ALL_TABLES, KEYS, check_version, rows_of
from tokmill.tasks.store.tombstones import tombstone

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Verify: TypeAlias = Literal["sizes", "full"]


@dataclass(frozen=True)
class Problem:
    """A problem of an artifact: the artifact (`kind/name@v1` or its directory), the file, and a message."""

    artifact: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.artifact}: {self.path}: {self.message}"


def examine(directory: Path, verify: Verify) -> Record | Problem:
    """Return the record of the artifact in `directory`, or the first problem that makes it unfit for use."""
    try:
        record = read_record(directory)
    except StoreError as error:
        return _unreadable(directory, error)
    return next(_damages(directory, record, full=verify == "full"), record)


def problems(directory: Path, *, full: bool) -> list[Problem]:
    """Return all problems of the artifact in `directory`, including those that do not prevent its use."""
    try:
        record = read_record(directory)
    except (StoreError, MachineError) as error:
        return [_unreadable(directory, error)]
    try:
        return [*_damages(directory, record, full=full), *_oddities(directory, record)]
    except MachineError as error:
        return [Problem(record.reference, ".", str(error))]


def _unreadable(directory: Path, error: TaskError) -> Problem:
    return Problem(f"{directory.parent.name}/{directory.name}", RECORD_FILE, str(error))


def _damages(directory: Path, record: Record, *, full: bool) -> Iterator[Problem]:
    if not record.fingerprint.startswith(directory.name) or record.kind != directory.parent.name:
        found = f"{record.kind}/{record.fingerprint[:PREFIX_CHARS]}"
        yield Problem(record.reference, RECORD_FILE, f"lies in {directory}, where {found} does not belong")
    for path, message in file_damages(directory, record, full=full):
        yield Problem(record.reference, path, message)


def file_damages(directory: Path, record: Record, *, full: bool) -> Iterator[tuple[str, str]]:
    """Yield the path of each file that differs from the record, and how; `directory` may be anywhere."""
    directory = Path(str(directory))  # what is here, without pulling anything
    outside = _links(directory, {_folder(entry) for entry in record.files})
    may_be_absent = remote_of(directory) is not None  # pulled when it is opened, and compared then
    for entry in record.files:
        if may_be_absent and not disk.is_taken(directory / entry.path):
            continue
        if _folder(entry) in outside:
            yield entry.path, "is reached through a link; an artifact holds folders and regular files only"
            continue
        message = _file_damage(directory / entry.path, entry, full)
        if message:
            yield entry.path, message


_sound: set[tuple[Path, int, int, int]] = set()


def check_files(directory: Path, files: Iterable[Path]) -> None:
    """Compare files of an artifact with its record, before they are read: each state of one once per process.

    Nothing is compared in a directory without a record, or one whose files are compared when they are pulled.
    It costs about a second of CPU time per 1.3 GB.
    """
    record = directory / RECORD_FILE
    if isinstance(directory, PulledPath) or not record.is_file():
        return
    entries = _entries(directory, record.stat().st_mtime_ns)
    for file in files:
        entry = entries.get(file.relative_to(directory).as_posix())
        state = (file, *_state(file))
        if entry is None or state in _sound:
            continue
        damage = _file_damage(file, entry, full=True)
        if damage:
            raise StoreError(
                f"{file}: the file {damage}; it was changed or damaged: `tokmill store verify` lists such "
                "files, and a run with execution.verify='full' makes them again"
            )
        _sound.add(state)


def _state(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError:  # its damage is reported
        return -1, -1, -1
    return found.st_size, found.st_ctime_ns, found.st_ino


@lru_cache(maxsize=64)
def _entries(directory: Path, _changed: int) -> Mapping[str, FileEntry]:
    return {entry.path: entry for entry in read_record(directory).files}


def check_regular(directory: Path, record: Record, names: Sequence[str] | None = None) -> None:
    """Raise StoreError if a file of an artifact (of these names) is a link, or is reached through one."""
    files = [entry for entry in record.files if names is None or entry.path in names]
    outside = _links(directory, {_folder(entry) for entry in files})
    for entry in files:
        is_link = _folder(entry) in outside
        with suppress(FileNotFoundError, NotADirectoryError):  # it is missed by whoever opens it
            is_link = is_link or disk.state(directory / entry.path).kind == "other"
        if is_link:
            raise StoreError(
                f"{record.reference}: {entry.path} is a link, or is reached through one; an artifact holds "
                "folders and regular files only: remove it, and get it again"
            )


def _folder(entry: FileEntry) -> str:
    return entry.path.rpartition("/")[0]


def _links(directory: Path, folders: set[str]) -> set[str]:
    """Return those folders of an artifact that are reached through a link, which may lead out of it."""
    real = os.path.realpath(str(directory))
    return {
        folder
        for folder in folders
        if folder and os.path.realpath(str(directory / folder)) != f"{real}/{folder}"
    }


def _file_damage(path: Path, entry: FileEntry, full: bool) -> str | None:
    try:
        state = disk.state(path)
        if state.kind != "file":
            return "is a link or special file, and was published as a regular one"
        if state.num_bytes != entry.size_bytes:
            return f"has {state.num_bytes} bytes and was published with {entry.size_bytes}"
        digest = disk.digest(path) if full else entry.digest
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        fault = unreadable(path, error)
        if isinstance(fault, MachineError):  # this proves nothing about the file
            raise fault from error
        return f"cannot be read ({error.strerror})"
    return None if digest == entry.digest else f"has digest {digest} and was published with {entry.digest}"


def _oddities(directory: Path, record: Record) -> Iterator[Problem]:
    for message in contradictions(record):
        yield Problem(record.reference, RECORD_FILE, message)
    for account in record.accounts:
        if not account.balanced:
            message = f"the account of source {account.source!r} in {account.unit} does not add up"
            yield Problem(record.reference, RECORD_FILE, message)
    listed = {entry.path for entry in record.files} | {RECORD_FILE}
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory).as_posix()
        if not path.is_dir() and relative not in listed:
            yield Problem(record.reference, relative, "is not in the record")


_CATALOG = "catalog"


def store_problems(layout: Layout, *, full: bool) -> Iterator[Problem]:
    """Yield all problems of a store; nothing is changed."""
    for place in layout.places():
        yield from problems(place, full=full)
        yield from _wrong_in_remote(place, full=full)
    yield from _wrong_names(layout)
    yield from _wrong_runs(layout)
    yield from _wrong_catalog(layout)


def _wrong_in_remote(place: Path, *, full: bool) -> Iterator[Problem]:
    """Yield what the remote, if there is one, does not have as it was published."""
    if (remote := remote_of(place)) is None:
        return
    name = remote.name_of(place)
    where = f"{name} in {remote.url}"
    try:
        yield from (Problem(where, path, message) for path, message in remote.damages(name, full=full))
    except (DamagedError, FileNotFoundError):  # of the record, which is known
        return
    except OSError as error:
        yield Problem(where, ".", f"cannot be read: {error}")


def _wrong_names(layout: Layout) -> Iterator[Problem]:
    """Yield files that are neither labels nor aliases; an empty one, left by a dead writer, is fine."""
    for tree in (LABELS, ALIASES):
        for path in sorted(named_files(layout.root / tree)):
            message = _unreadable_file(layout, path)
            if message is None and not read_name(path)[1] and not _is_empty(path):
                message = "holds no fingerprint, so it names nothing"
            if message:
                yield Problem(printable(path.parent.relative_to(layout.root)), printable(path.name), message)


def _wrong_runs(layout: Layout) -> Iterator[Problem]:
    """Yield runs, remarks and tombstones that are not what was written."""
    tombs = (layout.removed / entry.name for entry in disk.entries(layout.removed) if entry.is_dir())
    for folder in (layout.runs, layout.annotations, *tombs):
        names = (entry.name for entry in disk.entries(folder) if entry.name.endswith(".json"))
        for path in sorted(folder / name for name in names if not name.startswith(".")):
            message = _unreadable_file(layout, path)
            if message:
                where = printable(folder.relative_to(layout.root))
                yield Problem(where, printable(path.name), message)


def _wrong_catalog(layout: Layout) -> Iterator[Problem]:
    """Yield the differences between the catalog and the files that it was made from."""
    if not layout.catalog.exists():
        return
    try:
        with private(layout.root) as connection:
            sync_files(connection, layout, lambda line: None, adopt=False)  # unreadable ones are known
            with attached(connection, layout.catalog):
                check_version(connection)
                yield from _differences(connection, layout)
    except StoreError as error:
        yield Problem(_CATALOG, layout.catalog.name, f"cannot be compared with the records: {error}")


def _differences(connection: "DuckDBPyConnection", layout: Layout) -> Iterator[Problem]:
    listed = "SELECT key, path, mtime_ns, size FROM {}.catalog_files ORDER BY path"
    now, seen = (
        {key: rest for key, *rest in connection.execute(listed.format(name)).fetchall()}
        for name in ("scratch", "snapshot")
    )
    changed = _changed_keys(connection)
    for key, (path, *stamp) in seen.items():
        if key not in now:
            place = layout.root / path
            if not (place.parent if place.name == RECORD_FILE else place).exists():
                if place.name == RECORD_FILE and _was_removed(connection, layout, place.parts[-3], key):
                    continue  # by a process that was killed then
                message = "is in the catalog but no longer in the store; its next update drops it"
                yield Problem(_CATALOG, path, message)
        elif key in changed and (path.endswith(RECORD_FILE) or stamp == now[key][1:]):
            message = (
                f"the catalog has other {', '.join(changed[key])}: the file was changed later, or its "
                "artifact was made again; `tokmill store rebuild` reads it again"
            )
            yield Problem(_CATALOG, path, message)


def _was_removed(connection: "DuckDBPyConnection", layout: Layout, kind: str, fingerprint: str) -> bool:
    """Whether the artifact that the catalog has was removed, and not an earlier one of its recipe."""
    left = tombstone(layout, kind, fingerprint)
    wanted = "SELECT record_digest FROM snapshot.artifacts WHERE fingerprint = ?"
    return left is not None and connection.execute(wanted, [fingerprint]).fetchall() == [
        (left.record.record_digest,)
    ]


def _changed_keys(connection: "DuckDBPyConnection") -> dict[str, list[str]]:
    """Return, by a file's key, the tables in which its rows differ from the catalog's."""
    changed: dict[str, list[str]] = {}
    for table, key in KEYS.items():
        both = f"SELECT *, 1 AS times FROM scratch.{table} UNION ALL SELECT *, -1 FROM snapshot.{table}"  # noqa: S608
        same_row = ", ".join(ALL_TABLES[table])  # names are constants of the package
        apart = f"SELECT DISTINCT {key} FROM ({both}) GROUP BY {same_row} HAVING sum(times) <> 0"  # noqa: S608
        for (owner,) in connection.execute(apart).fetchall():
            changed.setdefault(owner, []).append(table)
    return changed


def _unreadable_file(layout: Layout, path: Path) -> str | None:
    try:
        rows_of(layout, path)
    except StoreError as error:
        return str(error)
    return None


def _is_empty(path: Path) -> bool:
    """Whether it is an empty regular file; False if its state cannot be read."""
    try:
        state = disk.state(path)
    except OSError:
        return False
    return state.kind == "file" and state.num_bytes == 0
