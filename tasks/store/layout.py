"""The paths in a store; `tasks.store.names` has the grammar of kinds, names, labels and aliases.

    <store>/<kind>/<fingerprint[:16]>/         a published artifact: its files and record.json
    <store>/labels/<kind>/<name>/@v1           a version label: holds its artifact's fingerprint
    <store>/aliases/<kind>/<name>/@prod        an alias, likewise
    <store>/runs/<run id>.json                 a flow run: its parameters, its artifacts, and its end
    <store>/annotations/<run id>.<…>.json      a tag or a note that somebody gave a run afterwards
    <store>/damaged/<kind>/<prefix>-<n>/       damaged artifacts that were set aside
    <store>/leases/<run id>.json               which process executes a run, and what it needs
    <store>/removed/<kind>/<prefix>.json       a tombstone: what was removed when, by whom, and why
    <store>/catalog.duckdb                     the index over all of these
    <store>/.tmp/  .locks/  .cache/            work in progress, process locks, the file digest cache
    <store>/.prefect/  .up/                    Prefect's results; logs of `up`
    <store>/.texts/                            columns of text and tokenizers that were given in memory

Names may contain `/` (a shard is `encoded_shard/quickstart.english/3`), so a label's file starts with `@`,
which no name has.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.cache import url_of
from tokmill.tasks.store.names import (
    RESERVED_KINDS,
    check_kind,
    check_name,
    is_fingerprint,
    is_kind,
)

PREFIX_CHARS = 16
RECORD_FILE = "record.json"
DEFAULT_STORE = "tokmill-store"
LABELS = "labels"
ALIASES = "aliases"

_PREFIX = re.compile(rf"[0-9a-f]{{{PREFIX_CHARS}}}")


@dataclass(frozen=True)
class Layout:
    """The paths of the store in the folder `root`."""

    root: Path

    @property
    def location(self) -> str:
        """The URL of the store's remote, if it has one; else the folder."""
        return url_of(self.root) or str(self.root)

    @property
    def temporary(self) -> Path:
        """Work in progress, on the same file system as published artifacts."""
        return self.root / ".tmp"

    @property
    def locks(self) -> Path:
        """Process locks; a file without an owner means nothing."""
        return self.root / ".locks"

    @property
    def cache(self) -> Path:
        """Caches; deleting them costs only time."""
        return self.root / ".cache"

    @property
    def texts(self) -> Path:
        """Source files that were given in memory, as columns of a table; artifacts point at them."""
        return self.root / ".texts"

    @property
    def results(self) -> Path:
        """Prefect's result files."""
        return self.root / ".prefect"

    @property
    def damaged(self) -> Path:
        """Artifacts that were set aside."""
        return self.root / "damaged"

    @property
    def removed(self) -> Path:
        """Tombstones of removed artifacts."""
        return self.root / "removed"

    @property
    def runs(self) -> Path:
        """One JSON file per flow run."""
        return self.root / "runs"

    @property
    def annotations(self) -> Path:
        """One JSON file per remark on a run."""
        return self.root / "annotations"

    @property
    def leases(self) -> Path:
        """One JSON file per run that is being executed; see `tasks.store.leases`."""
        return self.root / "leases"

    @property
    def catalog(self) -> Path:
        """The DuckDB index."""
        return self.root / "catalog.duckdb"

    @property
    def catalog_lock(self) -> Path:
        """The file whose lock a process holds while it has the catalog open."""
        return self.locks / "catalog.lock"

    def check_folders(self) -> None:
        """Refuse a link in place of the store's folders or catalog: what is written there lands elsewhere.

        The root may be one. Folders of labels, artifacts and runs are not looked at: there may be many.

        Raises:
            StoreError: there is one, maybe because the store comes from somebody else.
        """
        trees = {LABELS, ALIASES, "removed", "damaged", ".up", ".cache", ".locks"}
        own = trees | RESERVED_KINDS | {".tmp", ".texts", ".prefect", self.catalog.name}
        links = [path for path in disk.links_in(self.root) if path.name in own or is_kind(path.name)]
        links += [path for tree in sorted(trees) for path in disk.links_in(self.root / tree)]
        if links:
            raise StoreError(
                f"store {self.root}: {printable(links[0])} is a link, and what is written there would lie "
                "elsewhere; put what it leads to in its place (the whole store may be behind a link)"
            )

    def names(self, tree: str, kind: str, name: str) -> Path:
        """The folder of the labels or aliases (`tree`) of one (kind, name)."""
        check_kind(kind)
        check_name(name)
        return self.root / tree / kind / name

    def artifact(self, kind: str, fingerprint: str) -> Path:
        """The directory of an artifact, whether it exists or not."""
        check_kind(kind)
        if not is_fingerprint(fingerprint):
            raise StoreError(f"{fingerprint!r} is not a fingerprint: it must be 64 hexadecimal digits")
        return self.root / kind / fingerprint[:PREFIX_CHARS]

    def kinds(self) -> list[str]:
        """Kinds that the store has a folder for, sorted."""
        folders = (entry.name for entry in disk.entries(self.root) if entry.is_dir())
        return sorted(filter(is_kind, folders))

    def artifacts(self) -> Iterator[Path]:
        """Directories of published artifacts (those with a record), sorted by kind and fingerprint prefix."""
        return (path for path in self.places() if (path / RECORD_FILE).is_file())

    def places(self) -> Iterator[Path]:
        """Directories where an artifact could be, published or not, in the same order."""
        for kind in self.kinds():
            names = (entry.name for entry in disk.entries(self.root / kind))
            yield from (self.root / kind / name for name in sorted(names) if _PREFIX.fullmatch(name))


def is_prefix(text: str) -> bool:
    """Whether `text` can be the name of an artifact's directory: the first digits of a fingerprint."""
    return _PREFIX.fullmatch(text) is not None


def printable(path: Path | str) -> str:
    """Return a path with any bytes in it as text that can be printed and sent."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")
