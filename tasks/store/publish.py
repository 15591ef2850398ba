"""Publication: an artifact appears whole, or not at all.

    .tmp/<pid>-<uuid>/out/     the stage writes here; the process holds the lock .tmp/<pid>-<uuid>.lock
    accounts                   what came in must be what became of it
    files                      digested and flushed, then the folders
    record.json                written and flushed last
    rename                     to <kind>/<fingerprint prefix>; one step, or none

A directory without a record is never an artifact, and only complete directories are renamed to where
artifacts are looked for. The lock of a temporary directory is taken before the directory is made: whoever
gets that lock knows that the owner is dead and may sweep.
"""

import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tokmill.tasks.core.errors import AccountError, StoreError
from tokmill.tasks.core.stage import Account
from tokmill.tasks.store.digest import FileEntry, digest_file
from tokmill.tasks.store.durable import sync_path, write_new
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.locks import ProcessLock
from tokmill.tasks.store.record import Record, encode_record

_LOCK_SUFFIX = ".lock"


@contextmanager
def workspace(layout: Layout) -> Iterator[Path]:
    """Yield an empty directory that a stage may write into; whatever is left of it at the end is removed."""
    place = layout.temporary / f"{os.getpid()}-{uuid.uuid4().hex}"
    lock = ProcessLock(place.with_name(place.name + _LOCK_SUFFIX))
    lock.acquire()
    try:
        out = place / "out"
        out.mkdir(parents=True)
        yield out
    finally:
        shutil.rmtree(place, ignore_errors=True)  # what cannot be removed now is swept later
        lock.release()


def sweep(layout: Layout) -> list[Path]:
    """Remove what dead processes left in the temporary folder, and never what a living one works on.

    Returns:
        The removed directories, sorted.
    """
    if not layout.temporary.is_dir():
        return []
    names = {path.name.removesuffix(_LOCK_SUFFIX) for path in layout.temporary.iterdir()}
    return [layout.temporary / name for name in sorted(names) if _sweep_one(layout.temporary / name)]


def sweep_locks(layout: Layout) -> None:
    """Remove the files of locks that nobody holds; they mean nothing, but they add up."""
    for path in sorted(layout.locks.glob(f"*{_LOCK_SUFFIX}")):
        lock = ProcessLock(path)
        if path != layout.catalog_lock and lock.try_acquire():
            lock.release()


def check_accounts(where: str, accounts: Sequence[Account]) -> None:
    """Raise AccountError for the first account that does not add up; `where` names the artifact."""
    for account in accounts:
        amounts = {"in": account.num_in, **account.added, **account.became}
        negative = [f"{name}={amount}" for name, amount in amounts.items() if amount < 0]
        if negative:
            raise AccountError(f"{where}: source {account.source!r}: {account.unit} {negative} are below 0")
        if not account.balanced:
            raise AccountError(f"{where}: {_imbalance(account)}")


def digest_files(out: Path) -> list[FileEntry]:
    """Digest and flush every file below `out`, sorted by path, and flush the folders.

    Raises:
        StoreError: something below `out` is no regular file, has a name that is not UTF-8, or is called
        record.json.
    """
    entries = []
    for path in sorted(out.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            entries.append(_digest_synced(out, path))
        elif not stat.S_ISDIR(mode):
            raise StoreError(
                f"{path.relative_to(out)} is a link or special file; an artifact holds regular files only"
            )
    for folder in (out, *(path for path in out.rglob("*") if path.is_dir())):
        sync_path(folder)
    return sorted(entries, key=lambda entry: entry.path)


def commit(layout: Layout, out: Path, record: Record) -> Path:
    """Write the record and rename `out` to its place; return the place."""
    write_new(out / RECORD_FILE, encode_record(record))
    place = layout.artifact(record.kind, record.fingerprint)
    if not place.parent.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        sync_path(layout.root)
    out.rename(place)
    sync_path(place.parent)
    return place


def _sweep_one(place: Path) -> bool:
    lock = ProcessLock(place.with_name(place.name + _LOCK_SUFFIX))
    if not lock.try_acquire():
        return False
    try:
        existed = place.exists()
        shutil.rmtree(place, ignore_errors=True)
        return existed
    finally:
        lock.release()


def _digest_synced(out: Path, path: Path) -> FileEntry:
    relative = path.relative_to(out).as_posix()
    if relative == RECORD_FILE:
        raise StoreError(f"a stage wrote {RECORD_FILE}; that name belongs to the store")
    try:
        relative.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StoreError(
            f"file name {relative!r} is not UTF-8; an artifact's files have UTF-8 names"
        ) from error
    sync_path(path)
    return FileEntry(path=relative, size_bytes=path.stat().st_size, digest=digest_file(path))


def _imbalance(account: Account) -> str:
    added = sum(account.added.values())
    became = sum(account.became.values())
    return (
        f"source {account.source!r}: {account.num_in} {account.unit} came in and {added} were added, but "
        f"{dict(account.became)} make {became}; the difference is {account.num_in + added - became}"
    )
