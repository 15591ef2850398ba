"""The shelf: finds the artifact of a fingerprint at its place, and sets a damaged one aside.

    <kind>/<fingerprint prefix>                        its place
    damaged/<kind>/<fingerprint prefix>-<number>       where it is moved if it is not what was published

Only the holder of the fingerprint's lock moves what lies at its place; without the lock, one might move what
another process has just made again. An artifact that is set aside leaves the catalog, and is made again when
it is next asked for.
"""

from dataclasses import dataclass
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Request
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.durable import reported_as
from tokmill.tasks.store.indexing import Report
from tokmill.tasks.store.integrity import Problem, Verify, examine
from tokmill.tasks.store.interface import DamagedError, Lock
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.storage import STORAGE


@dataclass(frozen=True)
class Shelf:
    """The places of a store's artifacts."""

    layout: Layout
    catalog: Catalog

    def lock(self, kind: str, owner: str) -> Lock:
        """Return the lock of the fingerprint `owner`, not yet taken."""
        return STORAGE.lock(self.layout.locks / f"{kind}-{owner}.lock")

    def find(
        self, request: Request, owner: str, verify: Verify, say: Report, *, owned: bool = False
    ) -> ArtifactRef | None:
        """Return the sound artifact of a fingerprint, or None; a damaged one is set aside.

        Args:
            request: the request of the artifact, whose name it is given.
            owner: the fingerprint.
            verify: whether files are compared by size or by digest.
            say: receives a line about damage.
            owned: whether the caller holds the fingerprint's lock.
        """
        kind = request.stage.kind
        place = self.layout.artifact(kind, owner)
        if not STORAGE.is_taken(place):
            return None
        found = examine(place, verify)
        if isinstance(found, Record):
            return found.ref.model_copy(update={"name": request.name})
        if owned:
            self.set_aside(place, found, say)
            return None
        lock = self.lock(kind, owner)
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

    def set_aside_unfetched(self, record: Record, damage: DamagedError) -> str:
        """Set an artifact aside whose damage only came to light when it was fetched; say so."""
        said = list[str]()
        place = self.layout.artifact(record.kind, record.fingerprint)
        lock = self.lock(record.kind, record.fingerprint)
        found = Problem(record.reference, str(damage.filename), str(damage.strerror))
        try:
            if lock.try_acquire():
                try:
                    self.set_aside(place, found, said.append)
                finally:
                    lock.release()
        except StoreError as error:  # a store that may only be read
            said.append(f"{found}, and it cannot be set aside ({error})")
        return f"{'; '.join(said) or found}; run again"

    def set_aside_replaced(self, known: ArtifactRef, say: Report, record: Record) -> bool:
        """Set an artifact aside that was made again with other content; whether that was so."""
        if record.content_digest == known.content_digest:
            return False
        place = self.layout.artifact(known.kind, known.fingerprint)
        changed = f"content {known.content_digest[:16]} before, {record.content_digest[:16]} now"
        self.set_aside(place, f"{known.kind}/{known.name}: it was made again with other {changed}", say)
        return True

    def set_aside(self, place: Path, found: Problem | str, say: Report) -> None:
        """Move what lies at the place of an artifact to the damaged ones; the caller holds its lock.

        Args:
            place: the artifact's.
            found: what is wrong with it.
            say: receives a line about it.

        Raises:
            StoreError: it cannot be moved.
        """
        folder = self.layout.damaged / place.parent.name
        with reported_as(f"{found}, and it cannot be set aside"):
            STORAGE.make_folder(folder)
            aside = folder / f"{place.name}-{1 + _last_number(folder, place.name)}"
            STORAGE.move(place, aside)
            STORAGE.touch(aside)  # the time since when it lies there
            STORAGE.sync(place.parent)
        self.catalog.register(place / RECORD_FILE, report=say)
        again = "" if isinstance(found, str) else ", and it will be made again"
        say(f"{found}; set aside as {aside}{again}")


def _last_number(folder: Path, prefix: str) -> int:
    """The greatest n of the names `prefix-n` in a folder, or 0; smaller ones may have been removed."""
    names = (entry.name for entry in STORAGE.entries(folder) if entry.name.startswith(f"{prefix}-"))
    numbers = (name.removeprefix(f"{prefix}-") for name in names)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)
