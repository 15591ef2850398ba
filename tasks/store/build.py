"""Finds the artifact of a request, here or in the remote; else makes and publishes it: whole, or not at all.

Under the lock of the fingerprint, the stage writes into `.tmp/`, the record is written last, a store with a
remote pushes all, and one rename puts the folder in its place.
"""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from tokmill.tasks.core.context import time_limit
from tokmill.tasks.core.errors import AccountError, StoreError
from tokmill.tasks.core.faults import out_of_memory
from tokmill.tasks.core.peak_memory import peak_memory
from tokmill.tasks.core.stage import ArtifactRef, External, How, Input, Outcome, Request
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.digest import FileEntry, content_digest, digest_file, values_digest
from tokmill.tasks.store.disk import DamagedError, holding, lack_of, reported_as, sync_path
from tokmill.tasks.store.fingerprint import fingerprint, fingerprint_payload, plain
from tokmill.tasks.store.indexing import check_extra_tables
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
from tokmill.tasks.store.verify import Problem, Verify, examine, note_published
from tokmill.tokenizer.core.stopping import raise_if_stopped, stop_after

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Realized:
    """The result of `realize`: the artifact, and whether it was made, found, or waited for."""

    ref: ArtifactRef
    how: How

    @property
    def cached(self) -> bool:
        """Whether it was not made by this call."""
        return self.how != "made"


def fingerprint_of(request: Request) -> str:
    """Return the fingerprint of a request, which is computed once: 64 hexadecimal characters."""
    if not request.memo:
        request.memo["fingerprint"] = fingerprint(fingerprint_payload(request))
    return request.memo["fingerprint"]


class Builder(NamedTuple):
    """Finds and makes the artifacts of a store.

    Attributes:
        folder_of: returns the directory of an input, whose files may be pulled when they are opened.
        update: brings the catalog up to date, where a published artifact is gone.
        verify: how what is found is compared with its record.
        say: receives a line about what is damaged, waited for, or was removed before.
    """

    layout: Layout
    folder_of: Callable[[ArtifactRef], Path]
    update: Callable[[Report], None]
    verify: Verify = "sizes"
    say: Report = _LOG.warning

    def find(self, request: Request, *, owned: bool = False) -> ArtifactRef | None:
        """Return the sound artifact of a request, or None; a damaged one is set aside."""
        kind, owner = request.stage.kind, fingerprint_of(request)
        place = self.layout.artifact(kind, owner)
        found = _looked_up(place, self.verify, sure=owned)
        if isinstance(found, Record):
            return found.ref.model_copy(update={"name": request.name})
        if found is not None and owned:
            self.set_aside(place, found)
        elif found is not None:
            # else its owner will find the damage
            return self._if_free(kind, owner, found, lambda: self.find(request, owned=True))
        return None

    def _if_free(self, kind: str, owner: str, found: Problem, work: Callable[[], T]) -> T | None:
        """Do work under the lock of a damaged artifact, if it is free; say why a store cannot be changed."""
        lock = self.layout.lock_of(kind, owner)
        try:
            return work() if lock.try_acquire() else None
        except StoreError as error:
            self.say(f"{found}, and it cannot be set aside ({error})")
            return None
        finally:
            lock.release()

    def build(self, request: Request, provenance: Provenance | None, *, refresh: bool) -> Realized:
        """Make the artifact while no other process of this machine does, unless one has made it by now."""
        waited_for = list[str]()
        kind, owner = request.stage.kind, fingerprint_of(request)

        def wait(who: str) -> None:
            waited_for.append(who)
            self.say(f"{kind}/{request.name} is being made by {who}; waiting for it")

        place = self.layout.artifact(kind, owner)
        with holding(self.layout.lock_of(kind, owner), wait):
            known = self.find(request, owned=True)
            if known is not None and not refresh:
                return Realized(known, "waited" if waited_for else "cached")
            if stone := tombstone(self.layout, kind, owner):
                self.say(f"{stone.record.reference} was removed on {stone.removed[:10]}, and is made again")
            sweep(self.layout)
            with (
                self._handed_over(request.inputs) as inputs,
                _fault_of(self.layout, request),
                workspace(self.layout) as out,
            ):
                record = _made(self.layout, request, inputs, provenance or Provenance.collect(), out)
                if known is not None and known.content_digest == record.content_digest:
                    return Realized(record.ref, "made")
                if known is not None:
                    contents = f"{known.content_digest[:16]} before, {record.content_digest[:16]} now"
                    what = f"{known.kind}/{known.name}: it was made again with other content"
                    self.set_aside(place, f"{what} {contents}")
                is_first = commit(self.layout, out, record)
            if is_first:
                return Realized(record.ref, "made")
            record = read_record(place)
            self.say(f"{record.reference} was published by another machine first; that one is used")
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
        """Set an artifact aside whose damage only came to light when it was pulled; return what to say."""
        said = list[str]()
        place = self.layout.artifact(record.kind, record.fingerprint)
        found = Problem(record.reference, str(damage.filename), str(damage.strerror))
        if not any(remote_damages(place, full=True)):
            return f"{found}, but the remote has it as it was published; run again"
        telling = self._replace(say=said.append)
        telling._if_free(record.kind, record.fingerprint, found, lambda: telling.set_aside(place, found))
        return f"{'; '.join(said) or found}; run again"

    def set_aside(self, place: Path, found: Problem | str) -> None:
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
        self.update(self.say)
        again = "" if isinstance(found, str) else ", and it will be made again"
        self.say(f"{found}; set aside as {aside}{again}")


def _looked_up(place: Path, verify: Verify, *, sure: bool) -> Record | Problem | None:
    record, remote = place / RECORD_FILE, shared.remote_of(place)
    if remote is None:
        return examine(place, verify) if os.path.lexists(place) else None
    if not remote.bring(record, sure=sure):
        return None
    found = examine(place, verify)
    if isinstance(found, Problem):
        remote.discard(record)
        return examine(place, verify) if remote.bring(record, sure=True) else None
    return found


@contextmanager
def _fault_of(layout: Layout, request: Request) -> Iterator[None]:
    """Say of a fault of the machine that nothing was published, and what the machine lacks."""
    where = f"{request.stage.kind}/{request.name} was not published"
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(where, error) from error
    except Exception as error:
        lack = lack_of(error)
        if lack is None and not isinstance(error, OSError):
            raise
        room = f"{layout.root} has {shutil.disk_usage(layout.root).free} bytes free"
        said = f"{lack.what} ({error}); {room}; {lack.advice}" if lack else str(error)
        raise StoreError(f"{where}: {said}") from error


def _made(
    layout: Layout, request: Request, inputs: Mapping[str, object], provenance: Provenance, out: Path
) -> Record:
    started, clock = utc_now(), time.perf_counter()
    with stop_after(time_limit()), peak_memory() as peak:
        outcome = request.stage.run(request.params, out=out, **inputs)
    seconds = round(time.perf_counter() - clock, 6)
    timings = Timings(started=started, ended=utc_now(), seconds=seconds, peak_bytes=peak.num_bytes)
    _check_outcome(f"{request.stage.kind}/{request.name}", outcome)
    check_extra_tables(out)
    files = digest_files(out, inputs)
    owner = fingerprint_of(request)
    return Record(
        kind=request.stage.kind,
        name=request.name,
        label=Names(layout).reserve(request.stage.kind, request.name, owner, announce=False),
        fingerprint=owner,
        payload=fingerprint_payload(request),
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
    if not isinstance(outcome, Outcome):
        found = type(outcome).__qualname__
        raise StoreError(f"{where}: the stage returned a {found}; it must return an Outcome")
    for name, value in outcome.metrics.items():
        if not isinstance(value, str | int | float):
            found = type(value).__qualname__
            raise StoreError(f"{where}: metric {name}={value!r} is a {found}; use text, int, float or bool")
    plain(outcome.metrics, f"{where}: metrics")
    for account in outcome.accounts:
        source, amounts = f"{where}: source {account.source!r}", {**account.added, **account.became}
        amounts["in"] = account.num_in
        negative = [f"{name}={amount}" for name, amount in amounts.items() if amount < 0]
        if negative:
            raise AccountError(f"{source}: {account.unit} {negative} are below 0")
        if not account.balanced:
            added, became = sum(account.added.values()), sum(account.became.values())
            raise AccountError(
                f"{source}: {account.num_in} {account.unit} came in and {added} were added, but "
                f"{dict(account.became)} make {became}; the difference is {account.num_in + added - became}"
            )


def digest_files(out: Path, inputs: Mapping[str, object]) -> list[FileEntry]:
    """Digest and flush every file below `out`, sorted by path, and flush the folders.

    A file of an input that was linked into `out` has the digests that the input's record says.
    """
    entries, linked = list[FileEntry](), None
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
        if state.identity is not None:
            linked = _linked(inputs) if linked is None else linked
            if state.identity in linked:
                entries.append(linked[state.identity].model_copy(update={"path": relative}))
                continue
        digest, values = digest_file(path), values_digest(path)
        entries.append(
            FileEntry(path=relative, size_bytes=state.num_bytes, digest=digest, values_digest=values)
        )
    sync_folders(out)
    return sorted(entries, key=lambda entry: entry.path)


def _linked(inputs: Mapping[str, object]) -> dict[tuple[int, int], FileEntry]:
    """Return what records say of the inputs' files that have another name, by what identifies each."""
    several = (given if isinstance(given, list) else [given] for given in inputs.values())
    folders = (place for given in several for place in given if isinstance(place, Path))
    files = ((folder / file.path, file) for folder in folders for file in read_record(folder).files)
    states = ((disk.state(path), file) for path, file in files if path.exists())
    return {state.identity: file for state, file in states if state.identity is not None}


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
    note_published(place, record.files)
    return True
