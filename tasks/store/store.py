"""The store: turns requests into published artifacts, each made once.

No state of it is kept that others could not change: any number of processes, threads and machines may use
one. Two processes of a machine make an artifact once; of two machines, the second publishes nothing.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Request
from tokmill.tasks.store import removal, shared
from tokmill.tasks.store.build import Builder, Realized, fingerprint_of
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.consistency import store_problems
from tokmill.tasks.store.disk import DamagedError, reported_as
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import RECORD_FILE, Layout, local_root, tidy
from tokmill.tasks.store.leases import Lease, at_work, hold
from tokmill.tasks.store.names import check_name, shortened
from tokmill.tasks.store.provenance import Provenance
from tokmill.tasks.store.record import Record, Tombstone, input_entries, read_record, tombstone
from tokmill.tasks.store.references import resolve
from tokmill.tasks.store.remote import files_url, pull, pulled_when_opened
from tokmill.tasks.store.removal import Garbage
from tokmill.tasks.store.retention import Policy, superseded
from tokmill.tasks.store.snapshot import Row
from tokmill.tasks.store.tables import Report
from tokmill.tasks.store.verify import Problem, Verify, check_regular, problems

_LOG = logging.getLogger(__name__)


class Store:
    """Artifacts in a local folder, maybe with a remote; the folder is made with the first artifact.

    Attributes:
        root: the folder.
        layout: the paths in it.
        names: labels and aliases.
        catalog: the DuckDB index.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.layout = Layout(self.root)
        self.names = Names(self.layout)
        self.catalog = Catalog(self.layout)

    def __reduce__(self) -> tuple[Callable[[str], "Store"], tuple[str]]:
        """A store travels to another process, maybe of another machine, as its folder or URL."""
        return Store.open, (self.location,)

    @property
    def location(self) -> str:
        """The URL, without credentials, or the folder: by it, others open the same store."""
        return self.layout.location

    def builder(self, verify: Verify = "sizes", report: Report | None = None) -> Builder:
        """Return what finds and makes the artifacts."""
        return Builder(self.layout, self.place, self.catalog.update, verify, report or _LOG.warning)

    @classmethod
    def open(cls, location: str | Path) -> "Store":
        """Open the store at a path or URL.

        Raises:
            StoreError: the URL has a password or a query, or the folder is a file, or has links in the place
                of a store's own.
        """
        root = local_root(location) if isinstance(location, str) else location
        store = cls(root)
        try:
            if root.exists() and not root.is_dir():
                raise StoreError(f"store {root} is a file; a store is a folder")
            store.layout.check_folders()
        except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
            raise StoreError(f"store {shortened(str(location))} cannot be a folder: {error}"[:400]) from error
        return store

    def refresh(self) -> None:
        """See what other machines have pushed by now; a folder always shows it."""
        shared.refresh(self.root)

    def fingerprint(self, request: Request) -> str:
        """Return the fingerprint of `request`: 64 hexadecimal characters."""
        return fingerprint_of(request)

    def lookup(
        self, request: Request, verify: Verify = "sizes", report: Report | None = None
    ) -> ArtifactRef | None:
        """Return the published artifact that `request` asks for, or None if it has to be made.

        `verify` compares sizes with the record, or also digests (`full`); `report` receives a line about a
        damaged artifact, which is moved to `<store>/damaged/`.
        """
        return self.builder(verify, report).find(request)

    def realize(
        self,
        request: Request,
        provenance: Provenance | None = None,
        report: Report | None = None,
        verify: Verify = "sizes",
        *,
        refresh: bool = False,
    ) -> Realized:
        """Return the artifact that `request` asks for, making and publishing it if it is not there.

        Args:
            request: the request of the artifact.
            provenance: by whom and for which run; by default that of this process.
            report: as for `lookup`.
            verify: likewise.
            refresh: make it although it is there; unless it comes out equal, the old one is set aside.

        Raises:
            FingerprintError: the request has no fingerprint.
            AccountError: the stage's accounts do not add up.
            StoreError: the disk is full, a file cannot be written, or the stage broke the rules of the store.
            Exception: any other error of the stage.

        After any error, nothing is published and the temporary directory has been removed.
        """
        check_name(request.name)
        if not isinstance(request.params, request.stage.params):
            given, wanted = type(request.params).__qualname__, request.stage.params.__qualname__
            raise StoreError(f"{request.stage.verb}: params is a {given} and must be a {wanted}")
        used = (entry.fingerprint for entry in input_entries(request.inputs) if entry.fingerprint)
        hold([fingerprint_of(request), *used])
        builder = self.builder(verify, report)
        found = None if refresh else builder.find(request)
        if found is None:
            realized = builder.build(request, provenance, refresh=refresh)
        else:
            realized = Realized(found, "cached")
        self.label(realized.ref, request.name)
        return realized

    def path(self, ref: ArtifactRef, names: Sequence[str] | None = None) -> Path:
        """Return the directory of a published artifact, with local files (of these names; by default all).

        Raises:
            StoreError: as `place`; or a file cannot be pulled.
        """
        record = self.record(ref)
        place = self._place(record, names)
        try:
            with reported_as(f"{record.reference} cannot be pulled from {self.location}"):
                pull(place, names)
        except StoreError as error:
            if isinstance(error.__cause__, DamagedError):
                said = self.builder().set_aside_pulled(record, error.__cause__)
                raise StoreError(said) from error
            raise
        return place

    def place(self, ref: ArtifactRef) -> Path:
        """Return the directory of a published artifact, whose files may be pulled when they are opened.

        Raises:
            StoreError: it is not in the store, was made again with other content than that of `ref`, or has a
                link among its files.
        """
        return self._place(self.record(ref))

    def _place(self, record: Record, names: Sequence[str] | None = None) -> Path:
        place = self.layout.artifact(record.kind, record.fingerprint)
        check_regular(place, record, names)
        return pulled_when_opened(place)

    def address(self, ref: ArtifactRef, path: str = "") -> str:
        """Return where an artifact, or a file of it, lies: a folder's path, or an object's URL."""
        place = self.place(ref)
        return files_url(place, path) or str(place / path)

    def record(self, ref: ArtifactRef) -> Record:
        """Return an artifact's record.

        Raises:
            StoreError: it is not in the store, or was made again with other content than that of `ref`.
        """
        record = self.read(ref.kind, ref.fingerprint)
        if (record.fingerprint, record.content_digest) != (ref.fingerprint, ref.content_digest):
            raise StoreError(
                f"{ref.kind}/{ref.name}: the store holds content {record.content_digest[:16]} and the "
                f"reference means {ref.content_digest[:16]}; ask for the artifact again"
            )
        return record

    def read(self, kind: str, fingerprint: str) -> Record:
        """Return the record of the artifact with this fingerprint; StoreError if it is not in the store."""
        place = self.layout.artifact(kind, fingerprint)
        shared.bring(place / RECORD_FILE, sure=True)
        return read_record(place)

    def holds(self, ref: ArtifactRef) -> bool:
        """Whether the store has an artifact, sound or damaged."""
        path = self.layout.artifact(ref.kind, ref.fingerprint) / RECORD_FILE
        shared.bring(path, sure=True)
        return path.is_file()

    def past(self, kind: str, fingerprint: str) -> Record:
        """Return the record of the artifact with this fingerprint, even if it was removed."""
        stone = self.tombstone(kind, fingerprint)
        return stone.record if stone is not None else self.read(kind, fingerprint)

    def tombstone(self, kind: str, fingerprint: str) -> Tombstone | None:
        """Return what is left of an artifact that was removed, and not made again; None for any other."""
        if os.path.lexists(self.layout.artifact(kind, fingerprint)):
            return None
        return tombstone(self.layout, kind, fingerprint)

    def past_record(self, ref: ArtifactRef) -> Record:
        """Return an artifact's record, even if it was removed, and maybe made again with other content."""
        try:
            return self.record(ref)
        except StoreError:
            stone = tombstone(self.layout, ref.kind, ref.fingerprint)
            if stone is None or stone.record.content_digest != ref.content_digest:
                raise
            return stone.record

    def newest(self, kind: str, name: str) -> Record | None:
        """Return the record of the latest version of (kind, name), or None if there is none."""
        self.refresh()
        published = self.names.published(kind, name)
        return self.read(kind, published.popitem()[1]) if published else None

    def resolve(self, reference: str, *, removed: bool = False) -> ArtifactRef:
        """Return the artifact that `reference` names (`tasks.store.references`), possibly a removed one.

        Raises:
            StoreError: there is no such artifact; the message suggests similar names.
        """
        self.refresh()
        return resolve(self.layout, reference, removed=removed)

    def label(self, ref: ArtifactRef, name: str) -> str:
        """Return the version label that `ref` has under `name`; under a new name it gets the next one."""
        known = self.names.find(ref.kind, name, ref.fingerprint)
        return known or self.names.reserve(ref.kind, name, ref.fingerprint)

    def tag(self, ref: ArtifactRef, alias: str) -> None:
        """Point `alias` of (kind, name) at an artifact, whether or not it pointed elsewhere before."""
        with self.at_work("tag") as lease:
            lease.hold([ref.fingerprint])
            self.record(ref)
            self.names.tag(ref.kind, ref.name, alias, ref.fingerprint)

    def list(self, kind: str | None = None, name: str | None = None) -> Sequence[Row]:
        """Return one catalog row per version, sorted by kind, name and version; see `Catalog.versions`."""
        return self.catalog.versions(kind, name)

    def superseded(self) -> Mapping[str, Sequence[str]]:
        """Return the superseded artifacts by fingerprint, and what superseded them."""
        return self.catalog.asked(superseded)

    def verify(self, refs: Sequence[ArtifactRef] | None = None, *, full: bool = True) -> Sequence[Problem]:
        """Return the problems of `refs` (of the whole store if None); nothing is set aside."""
        if refs is None:
            self.refresh()
            return list(store_problems(self.layout, full=full))
        places = [self.layout.artifact(ref.kind, ref.fingerprint) for ref in refs]
        return [problem for place in places for problem in problems(place, full=full)]

    def at_work(self, what: str) -> AbstractContextManager[Lease]:
        """Protect what is looked up and made in a block from collectors; `what` is being done: `export`."""
        return at_work(self.layout, what)

    def remove(
        self, ref: ArtifactRef, *, with_dependents: bool = False, reason: str = ""
    ) -> Sequence[Record]:
        """Remove an artifact for good, maybe with all that was made from it; return what was removed."""
        return removal.remove(self.layout, self.catalog, ref, with_dependents=with_dependents, reason=reason)

    def find_removal(self, ref: ArtifactRef) -> Sequence[Record]:
        """Return what `remove` with dependents would remove."""
        return removal.find_removal(self.layout, self.catalog, ref)

    def find_garbage(self, policy: Policy) -> Garbage:
        """Return what `collect` would remove."""
        return removal.find_garbage(self.layout, self.catalog, policy)

    def collect(self, policy: Policy, report: Report | None = None) -> Garbage:
        """Remove what nothing keeps; see `tasks.store.retention`."""
        return removal.collect(self.layout, self.catalog, policy, report)

    def sweep(self) -> Sequence[Path]:
        """Remove the unfinished directories of dead processes; return them."""
        return tidy(self.layout)
