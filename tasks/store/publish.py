"""Makes an artifact and publishes it: it appears whole, or not at all.

    .tmp/<pid>-<uuid>/out/     the stage writes here; the process holds the lock .tmp/<pid>-<uuid>.lock
    accounts                   checked: input and additions equal the sum of all ends
    files                      digested and flushed, then the folders
    record.json                written and flushed last
    rename                     to <kind>/<fingerprint prefix>; one step, or none

A directory without a record is never an artifact, and only complete directories are renamed to where
artifacts are looked for. The lock of a temporary directory is taken before the directory is made: a process
that gets that lock knows that the owner is dead, and may sweep.
"""

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tokmill.tasks.core.context import time_limit
from tokmill.tasks.core.errors import AccountError, StoreError
from tokmill.tasks.core.faults import out_of_memory
from tokmill.tasks.core.peak_memory import peak_memory
from tokmill.tasks.core.stage import Account, ArtifactRef, External, Input, Outcome, Request
from tokmill.tasks.store.arriving import damage_below
from tokmill.tasks.store.canonical import plain
from tokmill.tasks.store.digest import FileEntry, content_digest, digest_file
from tokmill.tasks.store.durable import lack_of, sweep_unfinished
from tokmill.tasks.store.extra_tables import check_extra_tables
from tokmill.tasks.store.fingerprints import fingerprint, fingerprint_payload
from tokmill.tasks.store.interface import DamagedError
from tokmill.tasks.store.labels import ALIASES, LABELS, Names
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.provenance import Provenance, utc_now
from tokmill.tasks.store.record import Record, Timings, encode_record, input_entries, read_record
from tokmill.tasks.store.storage import STORAGE
from tokmill.tasks.store.values import values_digest
from tokmill.tokenizer.core.stopping import raise_if_stopped, stop_after

LOCK_SUFFIX = ".lock"
_WORKSPACE = re.compile("[0-9]+-[0-9a-f]+")  # process and uuid


class Made(NamedTuple):
    """What is published now, and whether by this process; another machine may have been first."""

    record: Record
    is_first: bool


def make(
    layout: Layout,
    request: Request,
    inputs: Mapping[str, object],
    provenance: Provenance,
    replaced: Callable[[Record], bool] | None = None,
) -> Made:
    """Run the stage of `request` and publish its files.

    Args:
        layout: the store.
        request: the request; the caller holds its fingerprint's lock.
        inputs: what the run function receives, by role.
        provenance: by whom and for which run.
        replaced: called with the new record before it is published; clears its place, or returns False if
            what is there is to stay.

    Raises:
        AccountError: the stage's accounts do not add up.
        MachineError: memory ran out.
        StoreError: the disk is full, a file cannot be written, or the stage broke the rules of the store.
        Exception: any other error of the stage.

    After any error, nothing is published and the temporary directory has been removed.
    """
    where = f"{request.stage.kind}/{request.name}"
    sweep(layout)
    try:
        with workspace(layout) as out:
            record = _run(layout, request, inputs, provenance, out)
            is_first = True
            if replaced is None or replaced(record):
                is_first = commit(layout, out, record)
    except OSError as error:
        raise StoreError(_failure(where, layout.root, error)) from error
    except MemoryError as error:
        raise out_of_memory(f"{where} was not published", error) from error
    except Exception as error:
        if lack_of(error):
            raise StoreError(_failure(where, layout.root, error)) from error
        raise
    place = layout.artifact(record.kind, record.fingerprint)
    return Made(record if is_first else read_record(place), is_first)


@contextmanager
def handed_over(
    inputs: Mapping[str, Input | Sequence[Input]],
    arriving: Callable[[ArtifactRef], Path],
    set_aside: Callable[[Record, DamagedError], str],
) -> Iterator[dict[str, object]]:
    """Give the arguments of a run function: folders of artifacts, values of externals, or lists of these.

    Args:
        inputs: the inputs of a request, by role.
        arriving: returns the folder of an artifact, whose files are local when they are opened.
        set_aside: sets an artifact aside whose damage came to light when a file was opened, and says so.

    Raises:
        StoreError: an input is damaged; and what the block raises.
    """
    places = list[Path]()

    def argument(given: Input | Sequence[Input]) -> object:
        if isinstance(given, ArtifactRef):
            places.append(arriving(given))
            return places[-1]
        if isinstance(given, External):
            return given.value
        return [argument(item) for item in given]

    try:
        yield {role: argument(given) for role, given in inputs.items()}
    except StoreError as error:
        damage = damage_below(error, places)
        if damage is None:
            raise
        raise StoreError(set_aside(read_record(damage.place), damage.found)) from error
    finally:
        for place in places:
            STORAGE.let_go(place)


def _run(
    layout: Layout, request: Request, inputs: Mapping[str, object], provenance: Provenance, out: Path
) -> Record:
    started, clock = utc_now(), time.perf_counter()
    with stop_after(time_limit()), peak_memory() as peak:
        outcome = request.stage.run(request.params, out=out, **inputs)
    seconds = round(time.perf_counter() - clock, 6)
    _check_outcome(request, outcome)
    check_extra_tables(out)
    files = digest_files(out)
    payload = fingerprint_payload(request)
    owner = fingerprint(payload)
    return Record(
        kind=request.stage.kind,
        name=request.name,
        label=Names(layout).reserve(request.stage.kind, request.name, owner, note=False),
        fingerprint=owner,
        payload=payload,
        content_digest=content_digest(files),
        files=files,
        inputs=input_entries(request.inputs),
        params=request.params.model_dump(mode="json"),
        metrics=dict(outcome.metrics),
        accounts=list(outcome.accounts),
        timings=Timings(started=started, ended=utc_now(), seconds=seconds, peak_bytes=peak.num_bytes),
        provenance=provenance,
    )


def _check_outcome(request: Request, outcome: object) -> None:
    """Refuse metrics that a record cannot hold, and accounts that do not add up."""
    where = f"{request.stage.kind}/{request.name}"
    if not isinstance(outcome, Outcome):
        found = type(outcome).__qualname__
        raise StoreError(f"{where}: the stage returned a {found}; it must return an Outcome")
    for name, value in outcome.metrics.items():
        if not isinstance(value, str | int | float):
            found = type(value).__qualname__
            raise StoreError(f"{where}: metric {name}={value!r} is a {found}; use text, int, float or bool")
    plain(outcome.metrics, f"{where}: metrics")
    check_accounts(where, outcome.accounts)


def _failure(where: str, root: Path, error: BaseException) -> str:
    lack = lack_of(error)
    if lack is None:
        return f"{where} was not published: {error}"
    room = f"{root} has {STORAGE.free_bytes(root)} bytes free"
    return f"{where} was not published: {lack.what} ({error}); {room}; {lack.advice}"


@contextmanager
def workspace(layout: Layout) -> Iterator[Path]:
    """Yield an empty directory for a stage to write into; what is left in it is removed afterwards."""
    place = layout.temporary / f"{os.getpid()}-{uuid.uuid4().hex}"
    lock = STORAGE.lock(place.with_name(place.name + LOCK_SUFFIX))
    lock.acquire()
    try:
        out = place / "out"
        STORAGE.make_folder(out)
        yield out
    finally:
        STORAGE.remove_tree(place)  # the next sweep removes the rest
        lock.release()


def sweep(layout: Layout) -> list[Path]:
    """Remove the temporary directories of dead processes.

    Returns:
        The removed directories, sorted.
    """
    return [place for place in workspaces(layout) if sweep_one(place)]


def workspaces(layout: Layout) -> list[Path]:
    """Return the temporary directories, also those of which there is only the lock, sorted.

    Anything else there is left alone: the store may be a folder that has a `.tmp` of its own.
    """
    names = {entry.name.removesuffix(LOCK_SUFFIX) for entry in STORAGE.entries(layout.temporary)}
    return [layout.temporary / name for name in sorted(filter(_WORKSPACE.fullmatch, names))]


def sweep_one(place: Path) -> bool:
    """Remove a temporary directory unless its process lives; return whether there was one."""
    lock = STORAGE.lock(place.with_name(place.name + LOCK_SUFFIX))
    if not lock.try_acquire():
        return False
    try:
        existed = STORAGE.exists(place)
        STORAGE.remove_tree(place)
        return existed
    finally:
        lock.release()


def tidy(layout: Layout) -> list[Path]:
    """Remove what killed processes left: temporary directories, files that they were writing, their locks.

    Returns:
        The removed directories, sorted.
    """
    swept = sweep(layout)
    if layout.is_remote:  # a mirror is a cache
        return swept
    sweep_locks(layout)
    for folder in (layout.runs, layout.leases, layout.cache, layout.cache / LABELS):
        sweep_unfinished(folder)
    sweep_unfinished(layout.removed, "*/")
    sweep_unfinished(layout.root / ALIASES, "**/")
    return swept


def is_stale(place: Path) -> bool:
    """Whether the process of a temporary directory has died."""
    lock = STORAGE.lock(place.with_name(place.name + LOCK_SUFFIX))
    free = lock.try_acquire()
    lock.release()
    return free


def sweep_locks(layout: Layout) -> None:
    """Remove lock files that nobody holds; they are harmless, but they accumulate."""
    for entry in STORAGE.entries(layout.locks):
        path = layout.locks / entry.name
        if path == layout.catalog_lock or path.suffix != LOCK_SUFFIX:
            continue
        lock = STORAGE.lock(path)
        if lock.try_acquire():
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
        StoreError: something below `out` is not a regular file, has a name that is not UTF-8, or is called
        record.json.
    """
    entries = []
    for path in sorted(STORAGE.tree(out)):
        raise_if_stopped()
        state = STORAGE.state(path)
        if state.kind == "file":
            entries.append(_digest_synced(out, path, state.num_bytes))
        elif state.kind != "folder":
            raise StoreError(
                f"{path.relative_to(out)} is a link or special file; an artifact holds regular files only"
            )
    for folder in (out, *(path for path in STORAGE.tree(out) if STORAGE.is_folder(path))):
        STORAGE.sync(folder)
    return sorted(entries, key=lambda entry: entry.path)


def commit(layout: Layout, out: Path, record: Record) -> bool:
    """Write the record and publish `out` in its place; return whether nobody else was first."""
    STORAGE.create(out / RECORD_FILE, encode_record(record))
    return STORAGE.publish(out, layout.artifact(record.kind, record.fingerprint))


def _digest_synced(out: Path, path: Path, num_bytes: int) -> FileEntry:
    relative = path.relative_to(out).as_posix()
    if relative == RECORD_FILE:
        raise StoreError(f"a stage wrote {RECORD_FILE}; that name belongs to the store")
    try:
        relative.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StoreError(
            f"file name {relative!r} is not UTF-8; an artifact's files have UTF-8 names"
        ) from error
    STORAGE.sync(path)
    return FileEntry(
        path=relative, size_bytes=num_bytes, digest=digest_file(path), values_digest=values_digest(path)
    )


def _imbalance(account: Account) -> str:
    added = sum(account.added.values())
    became = sum(account.became.values())
    return (
        f"source {account.source!r}: {account.num_in} {account.unit} came in and {added} were added, but "
        f"{dict(account.became)} make {became}; the difference is {account.num_in + added - became}"
    )
