"""The paths in a store (docs/formats.md), where a store is, and temporary folders in it.

A store at a URL has its local folder below the user's cache: `tokmill/stores/<digest of the URL>/`. The lock
of a temporary folder is taken before it is made: who gets that lock knows that the owner is dead, and sweeps.
"""

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tokmill.tasks.core.errors import RemoteError, StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.disk import ProcessLock, sweep_unfinished
from tokmill.tasks.store.names import RESERVED_KINDS, check_kind, check_name, is_fingerprint, is_kind

PREFIX_CHARS = 16
RECORD_FILE = "record.json"
DEFAULT_STORE = "tokmill-store"
LABELS = "labels"
ALIASES = "aliases"
REMOVED = "removed"
LOCK_SUFFIX: Final = ".lock"
_LINKED: Final = (LABELS, ALIASES, REMOVED, "damaged", ".up", ".cache", ".locks")
_OWN: Final = RESERVED_KINDS | {*_LINKED, ".tmp", ".texts", ".prefect", "catalog.duckdb"}
_PREFIX = re.compile(rf"[0-9a-f]{{{PREFIX_CHARS}}}")
_WORKSPACE = re.compile("[0-9]+-[0-9a-f]+")  # process and uuid
_STORES: Final = "/tokmill/stores/"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_URL_FILE = ".url"
_DIGEST_CHARS = 16


class Layout:
    """The paths of the store in the folder `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.temporary = root / ".tmp"  # on the same file system as published artifacts
        self.locks = root / ".locks"  # a file without an owner means nothing
        self.cache = root / ".cache"
        self.texts = root / ".texts"  # source files that were given in memory; artifacts point at them
        self.damaged = root / "damaged"
        self.removed = root / REMOVED
        self.runs = root / "runs"
        self.annotations = root / "annotations"
        self.leases = root / "leases"
        self.catalog = root / "catalog.duckdb"
        self.catalog_lock = self.locks / "catalog.lock"

    @property
    def location(self) -> str:
        """The URL of the store's remote, if it has one; else the folder."""
        return url_of(self.root) or str(self.root)

    def check_folders(self) -> None:
        """Refuse a link in place of the store's folders or catalog: what is written there lands elsewhere.

        The root may be one. Folders of labels, artifacts and runs are not looked at: there may be many.
        """
        own = [each for each in disk.entries(self.root) if each.name in _OWN or is_kind(each.name)]
        inside = [each for tree in _LINKED for each in disk.entries(self.root / tree)]
        links = [each.path for each in (*own, *inside) if each.is_symlink()]
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

    def lock_of(self, kind: str, fingerprint: str) -> ProcessLock:
        """The lock of an artifact, held while it is made, set aside or removed."""
        return ProcessLock(self.locks / f"{kind}-{fingerprint}{LOCK_SUFFIX}")

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
            yield from (self.root / kind / name for name in sorted(filter(is_prefix, names)))


def is_prefix(text: str) -> bool:
    """Whether `text` can be the name of an artifact's directory: the first digits of a fingerprint."""
    return _PREFIX.fullmatch(text) is not None


def part_of(path: str) -> str:
    """Return the part of a store that a file belongs to, by its path below the store."""
    first, second, *_ = path.split("/")
    return f"{first}/{second}" if first in (LABELS, REMOVED) else first


def printable(path: Path | str) -> str:
    """Return a path with any bytes in it as text that can be printed and sent."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")


def local_root(location: str) -> Path:
    """Return the folder of the store at a path or URL: the path itself, or the local folder of the URL."""
    scheme = _SCHEME.match(location)
    try:
        if scheme is None:
            return Path(location).expanduser()
        url = urlsplit(location)
        if scheme[1].lower() not in ("file", "local"):
            return _folder_of(location.rstrip("/"))
    except (RuntimeError, ValueError) as error:
        raise StoreError(f"store {location!r} is neither a folder nor a URL of one: {error}") from error
    if url.netloc not in ("", "localhost"):
        raise StoreError(f"store {location!r}: a file's URL names no host; use file:///path")
    return Path(unquote(url.path))


def _folder_of(url: str) -> Path:
    from tokmill.tasks.remote.location import check_url, without_secrets
    from tokmill.tasks.remote.services import require

    try:
        check_url(url)
        require(url)
    except RemoteError as error:
        raise StoreError(f"store {error}") from error
    if "?" in url or "#" in url:
        shown = re.split("[?#]", without_secrets(url))[0]
        raise StoreError(
            f"store {shown}: a store's URL has no query or fragment; settings and credentials come from the "
            "environment"
        )
    cache = os.environ.get("TOKMILL_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    digest = hashlib.sha256(url.encode("utf-8")).hexdigest()[:_DIGEST_CHARS]
    root = Path(f"{Path(cache).expanduser().absolute()}{_STORES}{digest}")
    with disk.reported_as(f"store {url}: its cache, in the folder TOKMILL_CACHE, cannot be written"):
        if not (root / _URL_FILE).is_file():
            disk.replace(root / _URL_FILE, f"{url}\n".encode(), flush=False)
    return root


def root_in(path: Path | str) -> Path | None:
    """Return the local folder of a store with a remote that a path leads into, or None."""
    before, mark, after = str(path).partition(_STORES)
    digest = after.partition("/")[0]
    return Path(f"{before}{mark}{digest}") if len(digest) == _DIGEST_CHARS else None


def url_of(path: Path | str) -> str | None:
    """Return the URL of the store whose local folder a path leads into; None if it leads into none."""
    if root := root_in(path):
        with suppress(OSError):
            return (root / _URL_FILE).read_text(encoding="utf-8").strip()
    return None


@contextmanager
def workspace(layout: Layout) -> Iterator[Path]:
    """Yield an empty directory for a stage to write into; what is left in it is removed afterwards."""
    place = layout.temporary / f"{os.getpid()}-{uuid.uuid4().hex}"
    lock = ProcessLock(place.with_name(place.name + LOCK_SUFFIX))
    lock.acquire()
    try:
        out = place / "out"
        out.mkdir(parents=True, exist_ok=True)
        yield out
    finally:
        shutil.rmtree(place, ignore_errors=True)  # the next sweep removes the rest
        lock.release()


def sweep(layout: Layout) -> list[Path]:
    """Remove the temporary directories of dead processes, also those of which there is only the lock.

    Anything else there is left alone: the store may be a folder that has a `.tmp` of its own.
    """
    names = {entry.name.removesuffix(LOCK_SUFFIX) for entry in disk.entries(layout.temporary)}
    swept = []
    for place in (layout.temporary / name for name in sorted(filter(_WORKSPACE.fullmatch, names))):
        lock = ProcessLock(place.with_name(place.name + LOCK_SUFFIX))
        if lock.try_acquire():
            swept += [place] if place.exists() else []
            shutil.rmtree(place, ignore_errors=True)
            lock.release()
    for entry in disk.entries(layout.root / LABELS) if swept else ():  # a dead process may have given one out
        disk.touch(Path(entry.path))
    return swept


def tidy(layout: Layout) -> list[Path]:
    """Remove what killed processes left: temporary directories, files that they were writing, their locks."""
    swept = sweep(layout)
    for entry in disk.entries(layout.locks):  # those that nobody holds are harmless, but they accumulate
        path = layout.locks / entry.name
        if path.suffix == LOCK_SUFFIX and (lock := ProcessLock(path)).try_acquire():
            lock.release()
    for folder in (layout.runs, layout.leases, layout.cache):
        sweep_unfinished(folder)
    sweep_unfinished(layout.removed, "*/")
    sweep_unfinished(layout.root / ALIASES, "**/")
    return swept
