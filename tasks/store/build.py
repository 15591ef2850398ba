"""Builds the artifact of a request: it is looked for here, then in the remote; else it is made and published.

    <kind>/<fingerprint prefix>                        its place
    damaged/<kind>/<fingerprint prefix>-<number>       where it is moved if it is not what was published

The lock of the fingerprint is taken before it is made, and the store is looked at again, since whoever had
the lock may have made it. Only the holder of the lock moves what lies at the place; without it, one might
move what another process has just made again. An artifact that is set aside leaves the catalog (and the
remote), and is made again when it is next asked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, External, How, Input, Request
from tokmill.tasks.store import disk
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.disk import DamagedError, ProcessLock, holding, reported_as, sync_path
from tokmill.tasks.store.indexing import Report
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.provenance import Provenance
from tokmill.tasks.store.publish import make
from tokmill.tasks.store.record import Record, read_record
from tokmill.tasks.store.remote import damage_below, remote_of
from tokmill.tasks.store.tombstones import tombstone
from tokmill.tasks.store.verify import Problem, Verify, examine


@dataclass(frozen=True)
class Realized:
    """The result of `realize`: the artifact, and whether it was made, found, or waited for."""

    ref: ArtifactRef
    how: How

    @property
    def cached(self) -> bool:
        """Whether it was not made by this call."""
        return self.how != "made"


@dataclass(frozen=True)
class Builder:
    """Finds and makes the artifacts of a store.

    Attributes:
        layout: the store.
        catalog: its catalog.
        folder_of: returns the directory of an input, whose files may be pulled when they are opened.
    """

    layout: Layout
    catalog: Catalog
    folder_of: Callable[[ArtifactRef], Path]

    def find(
        self, request: Request, owner: str, verify: Verify, say: Report, *, owned: bool = False
    ) -> ArtifactRef | None:
        """Return the sound artifact of a fingerprint, or None; a damaged one is set aside."""
        kind = request.stage.kind
        place = self.layout.artifact(kind, owner)
        found = self._found(place, verify, sure=owned)
        if found is None:
            return None
        if isinstance(found, Record):
            return found.ref.model_copy(update={"name": request.name})
        if owned:
            self.set_aside(place, found, say)
            return None
        lock = self._lock(kind, owner)
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

    def _found(self, place: Path, verify: Verify, *, sure: bool) -> Record | Problem | None:
        """Return what lies at a place, or what is wrong with it; a wrong copy is pulled again."""
        remote = remote_of(place)
        if remote is None:
            return examine(place, verify) if disk.is_taken(place) else None
        name = remote.name_of(place / RECORD_FILE)
        if not remote.bring(name, sure=sure):
            return None
        found = examine(place, verify)
        if isinstance(found, Record):
            return found
        remote.discard(name)
        return examine(place, verify) if remote.bring(name, sure=True) else None

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

        with holding(self._lock(request.stage.kind, owner), wait):
            known = self.find(request, owner, verify, say, owned=True)
            if known is not None and not refresh:
                return Realized(known, "waited" if waited_for else "cached")
            if left := tombstone(self.layout, request.stage.kind, owner):
                say(f"{left.record.reference} was removed on {left.removed[:10]}, and is made again")
            replaced = None if known is None else partial(self._set_aside_replaced, known, say)
            with self._handed_over(request.inputs) as inputs:
                made = make(self.layout, request, inputs, provenance or Provenance.collect(), replaced)
            if made.is_first:
                return Realized(made.record.ref, "made")
            say(f"{made.record.reference} was published by another machine first; that one is used")
            return Realized(made.record.ref.model_copy(update={"name": request.name}), "waited")

    def _lock(self, kind: str, owner: str) -> ProcessLock:
        return ProcessLock(self.layout.locks / f"{kind}-{owner}.lock")

    @contextmanager
    def _handed_over(self, inputs: Mapping[str, Input | Sequence[Input]]) -> Iterator[dict[str, object]]:
        """Give the arguments of a run function: folders of artifacts, values, or lists of these."""
        places = list[Path]()

        def argument(given: Input | Sequence[Input]) -> object:
            if isinstance(given, ArtifactRef):
                places.append(self.folder_of(given))
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
            raise StoreError(self.set_aside_pulled(read_record(damage.place), damage.error)) from error

    def set_aside_pulled(self, record: Record, damage: DamagedError) -> str:
        """Set an artifact aside whose damage only came to light when it was pulled; say so."""
        said = list[str]()
        place = self.layout.artifact(record.kind, record.fingerprint)
        lock = self._lock(record.kind, record.fingerprint)
        found = Problem(record.reference, str(damage.filename), str(damage.strerror))
        remote = remote_of(place)
        if remote is not None and not any(remote.damages(remote.name_of(place), full=True)):
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
            if remote := remote_of(place):
                remote.remove_artifact(remote.name_of(place))
            folder.mkdir(parents=True, exist_ok=True)
            aside = folder / f"{place.name}-{1 + _last_number(folder, place.name)}"
            place.rename(aside)
            disk.touch(aside)  # the time since when it lies there
            sync_path(place.parent)
        self.catalog.register(place / RECORD_FILE, report=say)
        again = "" if isinstance(found, str) else ", and it will be made again"
        say(f"{found}; set aside as {aside}{again}")


def _last_number(folder: Path, prefix: str) -> int:
    """The greatest n of the names `prefix-n` in a folder, or 0; smaller ones may have been removed."""
    names = (entry.name for entry in disk.entries(folder) if entry.name.startswith(f"{prefix}-"))
    numbers = (name.removeprefix(f"{prefix}-") for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)
