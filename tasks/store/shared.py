"""Small files that all users of a store see: records, labels, aliases, runs, tombstones, leases.

In a store with a remote they are objects, `<url>/index/…` and `<url>/leases/…`, and the local file is a copy,
compared with a listing that is at most ten seconds old, or twenty times as old as a listing takes.
"""

import errno
import functools
import hashlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from tokmill.tasks.core.errors import MachineError, RemoteError, StoreError
from tokmill.tasks.remote import objects
from tokmill.tasks.remote.faults import UnreachableError
from tokmill.tasks.remote.location import Info
from tokmill.tasks.store import disk
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import RECORD_FILE, part_of, root_in, url_of
from tokmill.tasks.store.names import is_inside, is_kind

M = TypeVar("M", bound=BaseModel)

INDEX: Final = "index"
LEASES: Final = "leases"
MOST_BYTES: Final = 256 << 20
"""The most bytes of a record, a run, or another small file."""
_TREES: Final = frozenset({"labels", "aliases", "runs", "annotations", "removed"})
_NAMES: Final = (f"*/*/{RECORD_FILE}", "*s/*.json", "removed/*/*.json", "labels/**/@*", "aliases/**/@*")
_FRESH_SECONDS = 10.0
_LISTINGS_PER_AGE = 20
_AT_ONCE = 16


def create(path: Path, data: bytes) -> None:
    """Write a file durably, and its folder if need be; raises FileExistsError if the name is taken."""
    if remote := remote_of(path):
        remote.create(path, data)
        disk.replace(path, data, flush=False)
    else:
        disk.create(path, data)


def replace(path: Path, data: bytes) -> None:
    """Write a file durably; a reader, or a crash, finds either the old bytes or the new ones."""
    if remote := remote_of(path):
        objects.write(remote.url_of(path), data)
        remote.forget(path)
        disk.replace(path, data, flush=False)
    else:
        disk.replace(path, data)


def touch(path: Path) -> None:
    """Set the modification time of a file to the present; an object is written again."""
    if remote := remote_of(path):
        objects.write(remote.url_of(path), path.read_bytes())
    disk.touch(path)


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    if remote := remote_of(path):
        objects.remove([remote.url_of(path)])
        remote.forget(path)
    path.unlink(missing_ok=True)


def refresh(root: Path) -> None:
    """See what other machines have written by now; a folder always shows it."""
    if remote := remote_of(root):
        remote.refresh()


def bring_folder(folder: Path) -> None:
    """Bring the local copies of a folder's files in step with the remote, if there is one."""
    if remote := remote_of(folder):
        remote.bring_folder(folder)


def bring(path: Path, *, sure: bool = False) -> bool:
    """Bring the local copy of a file in step with the remote, if there is one; return whether it exists.

    `sure`: ask the remote even if its last listing, some seconds old, has no such object.
    """
    remote = remote_of(path)
    return os.path.lexists(path) if remote is None else remote.bring(path, sure=sure)


def now_ns(root: Path) -> int:
    """Return the time by the clock of a store's file system, or of its remote, in nanoseconds since 1970.

    Ages of files are compared with it, so that it does not matter whether the clocks of machines agree.
    """
    remote = remote_of(root)
    if remote is None:
        return local_now_ns(root)
    url = f"{remote.url}/clock/{uuid.uuid4().hex}"
    try:
        objects.write(url, b"")
        try:
            return objects.stat(url).modified_ns
        finally:
            objects.remove([url])
    except OSError:  # a remote that may only be read
        return time.time_ns()


def local_now_ns(root: Path) -> int:
    """Return the time by the clock of the file system of a store's folder, in nanoseconds since 1970."""
    clock = root / ".cache" / "clock"
    try:
        disk.replace(clock, b"", flush=False)
        return disk.state(clock).mtime_ns
    except OSError:  # a store that may only be read
        return time.time_ns()


def read_model(path: Path, model: type[M], what: str) -> M:
    """Return what the local copy of a small file holds; StoreError if that is not `what` it should be."""
    try:
        return model.model_validate_json(disk.read(path, MOST_BYTES))
    except FileNotFoundError:
        raise
    except (OSError, ValidationError) as error:  # whose own words would quote the file
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise StoreError(f"{path} cannot be read as {what}: {said}") from error


def remote_of(path: Path | str) -> "Remote | None":
    """Return the remote of the store whose local folder a path leads into; None if it has none."""
    root = root_in(path)
    return None if root is None else _remote(root, os.getpid())


@functools.lru_cache(maxsize=64)
def _remote(root: Path, process: int) -> "Remote | None":
    """One for each process, since a fork must not share connections and locks."""
    url = url_of(root)
    return None if url is None else Remote(root, url)


class Remote:
    """The index of a store's remote, and its local copy below `root`; may be used by threads."""

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self.url = url
        self._lock = threading.RLock()
        self._listed: dict[str, Info] = {}
        self._began, self._seconds = float("-inf"), 0.0

    def name_of(self, path: Path) -> str:
        """Return a path below the local folder, with slashes."""
        return path.relative_to(self.root).as_posix()

    def url_of(self, path: Path) -> str:
        """Return the URL of the object of a local copy."""
        name = self.name_of(path)
        return f"{self.url}/{name}" if name.partition("/")[0] == LEASES else f"{self.url}/{INDEX}/{name}"

    def create(self, path: Path, data: bytes) -> None:
        """Write an object; raises FileExistsError if there is one with other bytes."""
        self.forget(path)
        try:
            objects.create(self.url_of(path), data)
        except FileExistsError:
            self.bring(path, sure=True)
            raise

    def forget(self, path: Path) -> None:
        """Take no listing's word for an object that was just written or removed."""
        with self._lock:
            self._listed.pop(self.name_of(path), None)

    def refresh(self) -> None:
        """Bring the local copies of the index in step; a large index only if the last time was long ago."""
        listed = self._listing(0.0)
        stale = {name for name, info in listed.items() if not self._is_current(self.root / name, info)}
        here = {self.name_of(path) for pattern in _NAMES for path in self.root.glob(pattern)}
        gone = {name for name in here - listed.keys() if _is_of_index(name)}  # if it is: each is asked for
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(self._try_bring, sorted(stale | gone)))

    def _try_bring(self, name: str) -> None:
        with suppress(OSError):  # reported when it is read
            self.bring(self.root / name, sure=True)

    def bring_folder(self, folder: Path) -> None:
        """Bring the local copies of a folder's objects in step."""
        url = self.url_of(folder)
        listed = {folder / info.url[len(url) + 1 :]: info for info in self.below(url)}
        for path, info in listed.items():
            with suppress(FileNotFoundError):
                self._make_current(path, info)
        for entry in disk.entries(folder):
            if folder / entry.name not in listed and not entry.is_dir():
                Path(entry.path).unlink(missing_ok=True)

    def bring(self, path: Path, *, sure: bool = False) -> bool:
        """Bring the local copy of an object of the index in step; return whether it exists."""
        name = self.name_of(path)
        info = self._listing(_FRESH_SECONDS).get(name)
        try:
            if info is None and (sure or path.exists()):
                with _answering(self.url):
                    info = objects.stat(self.url_of(path))
                with self._lock:
                    self._listed[name] = info
            if info is not None:
                self._make_current(path, info)
                return True
        except FileNotFoundError:  # maybe removed a moment ago
            self.forget(path)
        self.discard(path)
        return False

    def _listing(self, most_seconds: float) -> dict[str, Info]:
        url = f"{self.url}/{INDEX}"
        with self._lock:
            enough = _LISTINGS_PER_AGE * self._seconds if self._seconds > 1 else 0
            began = time.monotonic()
            if began - self._began > max(most_seconds, enough):
                below = ((info.url[len(url) + 1 :], info) for info in self.below(url))
                self._listed = {name: info for name, info in below if _is_of_index(name)}
                self._began, self._seconds = began, time.monotonic() - began
            return dict(self._listed) if most_seconds == 0 else self._listed

    def below(self, url: str) -> Iterator[Info]:
        """Yield the objects below a URL whose names can be those of local files."""
        with reported_as(f"{url} cannot be listed"), _answering(self.url):
            for info in objects.listed(url):
                if is_inside(info.url[len(url) + 1 :]):
                    yield info

    def _is_current(self, path: Path, info: Info) -> bool:
        with suppress(OSError):
            state, stamp = path.lstat(), _stamp_of(info)
            if (state.st_size, state.st_mtime_ns) == (info.num_bytes, stamp):
                return True
            if state.st_size == info.num_bytes:
                digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
                if digest == info.etag:  # this machine wrote it
                    os.utime(path, ns=(stamp, stamp))
                    return True
        return False

    def _make_current(self, path: Path, info: Info) -> None:
        if self._is_current(path, info):
            return
        if info.num_bytes > MOST_BYTES:
            raise OSError(errno.EINVAL, f"has more than {MOST_BYTES} bytes", str(path))
        with _answering(self.url):
            data = objects.read(self.url_of(path), MOST_BYTES)
        if path.name == RECORD_FILE and path.exists() and path.read_bytes() != data:
            self.discard(path)  # it was made again, with other files maybe
        disk.replace(path, data, flush=False, mtime_ns=_stamp_of(info))
        self._show_change(path)

    def discard(self, path: Path) -> None:
        """Remove a local copy, of a record with all files; whoever has them open keeps them."""
        if not path.parent.exists():
            return
        if path.name == RECORD_FILE:
            aside = self.root / ".cache" / f"old-{uuid.uuid4().hex}"
            aside.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                path.parent.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        self._show_change(path)

    def _show_change(self, path: Path) -> None:
        """Give the folder a new time by which the catalog looks for changes (`tasks.store.indexing`)."""
        with suppress(OSError):
            disk.touch(self.root / part_of(self.name_of(path)))


def _is_of_index(name: str) -> bool:
    """Whether the store writes such names to the index; others must not become local files."""
    first, *rest = name.split("/")
    return first in _TREES or (is_kind(first) and len(rest) == 2 and rest[1] == RECORD_FILE)


@contextmanager
def _answering(url: str) -> Iterator[None]:
    """Raise MachineError if the service does not answer: that says nothing about what it holds."""
    try:
        yield
    except UnreachableError as error:
        raise MachineError(f"{url} cannot be reached: {error.strerror}; run again when it can") from error
    except RemoteError as error:
        raise StoreError(f"store {url}: {error}") from error


def _stamp_of(info: Info) -> int:
    """Return a time in nanoseconds, alike on all machines, that tells contents of one second apart."""
    distinct = int.from_bytes(info.etag.encode("utf-8")[-8:], "big") % 999_999_999
    return info.modified_ns // 1_000_000_000 * 1_000_000_000 + distinct
