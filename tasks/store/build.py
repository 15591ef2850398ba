"""Finds the artifact of a request, here or in the remote; else makes and publishes it: whole, or not at all.

The lock of the fingerprint is taken, and the store looked at again; the stage writes into
`.tmp/<pid>-<uuid>/`; accounts are checked, files digested and flushed; the record is written last, and in a
store with a remote all is pushed; one rename puts the folder in its place. Only the holder of the lock moves
what lies there.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokmill.tasks.core.context import time_limit
from tokmill.tasks.core.errors import AccountError, StoreError
from tokmill.tasks.core.faults import out_of_memory
from tokmill.tasks.core.peak_memory import peak_memory
from tokmill.tasks.core.stage import Account, ArtifactRef, External, How, Input, Outcome, Request
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.digest import FileEntry, content_digest, digest_file, values_digest
from tokmill.tasks.store.disk import DamagedError, holding, lack_of, reported_as, sync_path
from tokmill.tasks.store.extra_tables import check_extra_tables
from tokmill.tasks.store.fingerprint import fingerprint, fingerprint_payload, plain
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import RECORD_FILE, Layout, sweep, workspace
from tokmill.tasks.store.names import is_utf8
from tokmill.tasks.store.provenance import Provenance, utc_now
from tokmill.tasks.store.record import (
    Record,
    Timings,
    encode_record,
    input_entries,
    read_record,
    tombstone,
)
from tokmill.tasks.store.remote import damage_below, push, remote_damages, remove_pushed
from tokmill.tasks.store.tables import Report
from tokmill.tasks.store.verify import Problem, Verify, examine
from tokmill.tokenizer.core.stopping import raise_if_stopped, stop_after

if TYPE_CHECKING:
    from tokmill.tasks.store.catalog import Catalog


@dataclass(frozen=True)
class Realized:
    """The result of `realize`: the artifact, and whether it was made, found, or waited for."""

    ref: ArtifactRef
    how: How

    @property
    def cached(self) -> bool:
        """Whether it was not made by this call."""
        return self.how != "made"


class Builder(NamedTuple):
    """Finds and makes the artifacts of a store.

    Attributes:
        folder_of: returns the directory of an input, whose files may be pulled when they are opened.
    """

    layout: Layout  # the store
    catalog: "Catalog"  # its catalog
    folder_of: Callable[[ArtifactRef], Path]

    def find(
        self, request: Request, owner: str, verify: Verify, say: Report, *, owned: bool = False
    ) -> ArtifactRef | None:
        """Return the sound artifact of a fingerprint, or None; a damaged one is set aside."""
        kind = request.stage.kind
        place = self.layout.artifact(kind, owner)
        found = _looked_up(place, verify, sure=owned)
        if found is None:
            return None
        if isinstance(found, Record):
            return found.ref.model_copy(update={"name": request.name})
        if owned:
            self.set_aside(place, found, say)
            return None
        lock = self.layout.lock_of(kind, owner)
        try:
            if not lock.try_acquire():  # its owner will find the damage as well
                return None
        except StoreError as error:  # a read-only store
            say(f"{found}, and it cannot be set aside ({error})")
            return None
        try:
            return self.find(request, owner, verify, say, owned=True)
        finally:
            lock.release()

    def build(
        self,
        request: Request,
        owner: str,
        provenance: Provenance | None,
        say: Report,
        verify: Verify,
        *,
        refresh: bool,
    ) -> Realized:
        """Make the artifact while no other process of this machine does, unless one has made it by now."""
        waited_for = list[str]()

        def wait(who: str) -> None:
            waited_for.append(who)
            say(f"{request.stage.kind}/{request.name} is being made by {who}; waiting for it")

        with holding(self.layout.lock_of(request.stage.kind, owner), wait):
            known = self.find(request, owner, verify, say, owned=True)
            if known is not None and not refresh:
                return Realized(known, "waited" if waited_for else "cached")
            if stone := tombstone(self.layout, request.stage.kind, owner):
                say(f"{stone.record.reference} was removed on {stone.removed[:10]}, and is made again")
            replaced = None if known is None else partial(self._set_aside_replaced, known, say)
            with self._handed_over(request.inputs) as inputs:
                record, is_first = make(
                    self.layout, request, inputs, provenance or Provenance.collect(), replaced
                )
            if is_first:
                return Realized(record.ref, "made")
            say(f"{record.reference} was published by another machine first; that one is used")
            return Realized(record.ref.model_copy(update={"name": request.name}), "waited")

    @contextmanager
    def _handed_over(self, inputs: Mapping[str, Input | Sequence[Input]]) -> Iterator[dict[str, object]]:
        """Give the arguments of a run function: folders of artifacts, values, or lists of these."""
        places = list[Path]()

        def argument(value: Input | Sequence[Input]) -> object:
            if isinstance(value, ArtifactRef):
                places.append(self.folder_of(value))
                return places[-1]
            if isinstance(value, External):
                return value.value
            return [argument(item) for item in value]

        try:
            yield {role: argument(value) for role, value in inputs.items()}
        except StoreError as error:
            if (damage := damage_below(error, places)) is None:
                raise
            raise StoreError(self.set_aside_pulled(read_record(damage[0]), damage[1])) from error

    def set_aside_pulled(self, record: Record, damage: DamagedError) -> str:
        """Set an artifact aside whose damage only came to light when it was pulled; say so."""
        said = list[str]()
        place = self.layout.artifact(record.kind, record.fingerprint)
        lock = self.layout.lock_of(record.kind, record.fingerprint)
        found = Problem(record.reference, str(damage.filename), str(damage.strerror))
        if not any(remote_damages(place, full=True)):
            return f"{found}, but the remote has it as it was published; run again"
        try:
            if lock.try_acquire():
                try:
                    self.set_aside(place, found, said.append)
                finally:
                    lock.release()
        except StoreError as error:  # a store that may only be read
            said.append(f"{found}, and it cannot be set aside ({error})")
        return f"{'; '.join(said) or found}; run again"

    def _set_aside_replaced(self, known: ArtifactRef, say: Report, record: Record) -> bool:
        """Set an artifact aside that was made again with other content; whether that was so."""
        if record.content_digest == known.content_digest:
            return False
        place = self.layout.artifact(known.kind, known.fingerprint)
        changed = f"content {known.content_digest[:16]} before, {record.content_digest[:16]} now"
        self.set_aside(place, f"{known.kind}/{known.name}: it was made again with other {changed}", say)
        return True

    def set_aside(self, place: Path, found: Problem | str, say: Report) -> None:
        """Move what lies at the place of an artifact to the damaged ones; the caller holds its lock."""
        folder = self.layout.damaged / place.parent.name
        with reported_as(f"{found}, and it cannot be set aside"):
            remove_pushed(place)
            folder.mkdir(parents=True, exist_ok=True)
            # the greatest number that there is, since smaller ones may have been removed
            names = (entry.name.rpartition("-") for entry in disk.entries(folder))
            numbers = (int(number) for name, _, number in names if name == place.name and number.isdecimal())
            aside = folder / f"{place.name}-{1 + max(numbers, default=0)}"
            place.rename(aside)
            disk.touch(aside)  # the time since when it lies there
            sync_path(place.parent)
        self.catalog.register(place / RECORD_FILE, report=say)
        again = "" if isinstance(found, str) else ", and it will be made again"
        say(f"{found}; set aside as {aside}{again}")


def _looked_up(place: Path, verify: Verify, *, sure: bool) -> Record | Problem | None:
    """Return what lies at a place, or what is wrong with it; a wrong copy is pulled again."""
    remote = shared.remote_of(place)
    if remote is None:
        return examine(place, verify) if disk.is_taken(place) else None
    record = place / RECORD_FILE
    if not remote.bring(record, sure=sure):
        return None
    found = examine(place, verify)
    if isinstance(found, Record):
        return found
    remote.discard(record)
    return examine(place, verify) if remote.bring(record, sure=True) else None


def make(
    layout: Layout,
    request: Request,
    inputs: Mapping[str, object],
    provenance: Provenance,
    replaced: Callable[[Record], bool] | None = None,
) -> tuple[Record, bool]:
    """Run the stage of `request` and publish its files, if `replaced` agrees.

    Returns:
        What is published now, and whether by this process; another machine may have been first.

    After any error, nothing is published and the temporary directory has been removed.
    """
    where = f"{request.stage.kind}/{request.name}"
    sweep(layout)
    try:
        with workspace(layout) as out:
            started, clock = utc_now(), time.perf_counter()
            with stop_after(time_limit()), peak_memory() as peak:
                outcome = request.stage.run(request.params, out=out, **inputs)
            seconds = round(time.perf_counter() - clock, 6)
            timings = Timings(started=started, ended=utc_now(), seconds=seconds, peak_bytes=peak.num_bytes)
            record, is_first = _record_of(layout, request, provenance, out, outcome, timings), True
            if replaced is None or replaced(record):
                is_first = commit(layout, out, record)
    except MemoryError as error:
        raise out_of_memory(f"{where} was not published", error) from error
    except Exception as error:
        lack = lack_of(error)
        if lack is None and not isinstance(error, OSError):
            raise
        room = f"{layout.root} has {shutil.disk_usage(layout.root).free} bytes free"
        said = f"{lack.what} ({error}); {room}; {lack.advice}" if lack else str(error)
        raise StoreError(f"{where} was not published: {said}") from error
    place = layout.artifact(record.kind, record.fingerprint)
    return record if is_first else read_record(place), is_first


def _record_of(
    layout: Layout, request: Request, provenance: Provenance, out: Path, outcome: Outcome, timings: Timings
) -> Record:
    _check_outcome(f"{request.stage.kind}/{request.name}", outcome)
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
        timings=timings,
        provenance=provenance,
    )


def _check_outcome(where: str, outcome: object) -> None:
    """Refuse metrics that a record cannot hold, and accounts that do not add up."""
    if not isinstance(outcome, Outcome):
        found = type(outcome).__qualname__
        raise StoreError(f"{where}: the stage returned a {found}; it must return an Outcome")
    for name, value in outcome.metrics.items():
        if not isinstance(value, str | int | float):
            found = type(value).__qualname__
            raise StoreError(f"{where}: metric {name}={value!r} is a {found}; use text, int, float or bool")
    plain(outcome.metrics, f"{where}: metrics")
    check_accounts(where, outcome.accounts)


def check_accounts(where: str, accounts: Sequence[Account]) -> None:
    """Raise AccountError for the first account that does not add up; `where` names the artifact."""
    for account in accounts:
        amounts = {"in": account.num_in, **account.added, **account.became}
        negative = [f"{name}={amount}" for name, amount in amounts.items() if amount < 0]
        if negative:
            raise AccountError(f"{where}: source {account.source!r}: {account.unit} {negative} are below 0")
        if not account.balanced:
            added, became = sum(account.added.values()), sum(account.became.values())
            difference = account.num_in + added - became
            raise AccountError(
                f"{where}: source {account.source!r}: {account.num_in} {account.unit} came in and {added} "
                f"were added, but {dict(account.became)} make {became}; the difference is {difference}"
            )


def digest_files(out: Path) -> list[FileEntry]:
    """Digest and flush every file below `out`, sorted by path, and flush the folders."""
    entries = []
    for path in sorted(out.rglob("*")):
        raise_if_stopped()
        state, relative = disk.state(path), path.relative_to(out).as_posix()
        if state.kind == "folder":
            continue
        if state.kind != "file":
            raise StoreError(f"{relative} is a link or special file; an artifact holds regular files only")
        if relative == RECORD_FILE:
            raise StoreError(f"a stage wrote {RECORD_FILE}; that name belongs to the store")
        if not is_utf8(relative):
            raise StoreError(f"file name {relative!r} is not UTF-8; an artifact's files have UTF-8 names")
        sync_path(path)
        digest, values = digest_file(path), values_digest(path)
        entries.append(
            FileEntry(path=relative, size_bytes=state.num_bytes, digest=digest, values_digest=values)
        )
    sync_folders(out)
    return sorted(entries, key=lambda entry: entry.path)


def sync_folders(out: Path) -> None:
    """Flush the entries of a folder and of all folders below it."""
    for folder in (out, *(path for path in out.rglob("*") if path.is_dir())):
        sync_path(folder)


def commit(layout: Layout, out: Path, record: Record) -> bool:
    """Write the record and publish `out` in its place, in one durable step: all of it appears, or nothing.

    In a store with a remote it is pushed first; False if another machine was first.
    """
    disk.create(out / RECORD_FILE, encode_record(record))
    place = layout.artifact(record.kind, record.fingerprint)
    if not push(out, place):
        return False
    if shared.remote_of(place):
        shutil.rmtree(place, ignore_errors=True)  # a copy of the record of who was first
    if not place.parent.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        sync_path(place.parent.parent)
    out.rename(place)
    sync_path(place.parent)
    return True
