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

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tokmill.tasks.core.context import time_limit
from tokmill.tasks.core.errors import AccountError, StoreError
from tokmill.tasks.core.faults import out_of_memory
from tokmill.tasks.core.peak_memory import peak_memory
from tokmill.tasks.core.stage import Account, Outcome, Request
from tokmill.tasks.store import disk
from tokmill.tasks.store.digest import FileEntry, content_digest, digest_file, plain
from tokmill.tasks.store.disk import lack_of, sync_path
from tokmill.tasks.store.extra_tables import check_extra_tables
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.provenance import Provenance, utc_now
from tokmill.tasks.store.recipe import fingerprint, fingerprint_payload
from tokmill.tasks.store.record import Record, Timings, encode_record, input_entries, read_record
from tokmill.tasks.store.remote import remote_of
from tokmill.tasks.store.values import values_digest
from tokmill.tasks.store.workspace import sweep, workspace
from tokmill.tokenizer.core.stopping import raise_if_stopped, stop_after


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
        label=Names(layout).reserve(request.stage.kind, request.name, owner, announce=False),
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
    room = f"{root} has {shutil.disk_usage(root).free} bytes free"
    return f"{where} was not published: {lack.what} ({error}); {room}; {lack.advice}"


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
    """Digest and flush every file below `out`, sorted by path, and flush the folders."""
    entries = []
    for path in sorted(out.rglob("*")):
        raise_if_stopped()
        state = disk.state(path)
        if state.kind == "file":
            entries.append(_digest_synced(out, path, state.num_bytes))
        elif state.kind != "folder":
            raise StoreError(
                f"{path.relative_to(out)} is a link or special file; an artifact holds regular files only"
            )
    for folder in (out, *(path for path in out.rglob("*") if path.is_dir())):
        sync_path(folder)
    return sorted(entries, key=lambda entry: entry.path)


def commit(layout: Layout, out: Path, record: Record) -> bool:
    """Write the record and publish `out` in its place, in one durable step: all of it appears, or nothing.

    In a store with a remote it is pushed first.
    """
    disk.create(out / RECORD_FILE, encode_record(record))
    place = layout.artifact(record.kind, record.fingerprint)
    if remote := remote_of(place):
        if not remote.push(out, remote.name_of(place)):
            return False
        shutil.rmtree(place, ignore_errors=True)  # a copy of the record of who was first
    if not place.parent.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        sync_path(place.parent.parent)
    out.rename(place)
    sync_path(place.parent)
    return True


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
    sync_path(path)
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
