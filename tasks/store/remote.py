"""The remote of a store: a place behind a URL that artifacts are pushed to and pulled from.

    <url>/index/<kind>/<prefix>/record.json              a record: the artifact is published if it is there
    <url>/index/labels|aliases|runs|annotations|removed  as in a folder
    <url>/files/<kind>/<prefix>/<stored[:16]>/<path>     an artifact's files, by the digest of their bytes
    <url>/leases/<run id>.json                           what running work needs

The store itself is a local folder (`tasks.store.cache`), and everything else works on that. What it has of
the index is a copy, compared with a listing that is at most ten seconds old, or twenty times as old as a
listing takes; the files of artifacts are pulled when they are first opened.

    push    the files, then the record by a conditional write, which is the commit; equal recipes give equal
            bytes, so of two machines that push one artifact the second has lost time and nothing else
    pull    files under temporary names, compared with the record, then renamed
    remove  the record first, then the files

Files lie below the digest of their bytes, so that writers of one artifact with different bytes (Parquet of
other library versions) never write the same object; the record says whose files count.
"""

import errno
import functools
import hashlib
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PosixPath
from typing import Final, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from tokmill.tasks.core.errors import MachineError, RemoteError, StoreError
from tokmill.tasks.remote import objects
from tokmill.tasks.remote.faults import ChangedError, UnreachableError
from tokmill.tasks.remote.location import Info, joined
from tokmill.tasks.store import disk
from tokmill.tasks.store.cache import RECORD, make_room, pulling_lock, root_in, url_of
from tokmill.tasks.store.digest import FileEntry, digest_file, digest_object, stored_digest
from tokmill.tasks.store.disk import DamagedError, reported_as
from tokmill.tasks.store.names import broken_rule, is_kind, shortened

INDEX, FILES, LEASES = "index", "files", "leases"
_TREES: Final = frozenset({"labels", "aliases", "runs", "annotations", "removed"})
_MOST_BYTES = 256 << 20
_LARGE_BYTES = 4 << 20  # from this size on, to ask whether a file is there costs little beside sending it
_FRESH_SECONDS = 10.0
_LISTINGS_PER_AGE = 20
_AT_ONCE = 16
_CONTENT_CHARS = 16
_ENTRIES = TypeAdapter(list[FileEntry])
_SAID = set[str]()
_LOG = logging.getLogger(__name__)


class Contents(NamedTuple):
    """What a record says of an artifact's files: the digest of their bytes, and each by its path."""

    stored: str
    files: Mapping[str, FileEntry]

    @classmethod
    def of(cls, record: bytes) -> "Contents":
        """Read the bytes of a record; raises DamagedError if they are none."""
        try:
            files = _ENTRIES.validate_python(orjson.loads(record)["files"])
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise DamagedError(errno.EINVAL, "the record is damaged") from error
        return cls(stored_digest(files)[:_CONTENT_CHARS], {entry.path: entry for entry in files})


def files_url(url: str, folder: str, stored: str, path: str = "") -> str:
    """Return the URL of an artifact's files, or of one of them, by its folder and stored digest."""
    return "/".join(part for part in (url, FILES, folder, stored[:_CONTENT_CHARS], path) if part)


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
    """The remote of one store; may be used by threads.

    Args:
        root: the store's local folder.
        url: where the remote is.
    """

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self.url = url
        self._lock = threading.RLock()
        self._listed: dict[str, Info] = {}
        self._began, self._seconds = float("-inf"), 0.0
        self._brought = float("-inf")

    def name_of(self, path: Path) -> str:
        """Return a path below the local folder, with slashes."""
        return path.relative_to(self.root).as_posix()

    def _url(self, name: str) -> str:
        tree = name.partition("/")[0]
        return f"{self.url}/{name}" if tree == LEASES else f"{self.url}/{INDEX}/{name}"

    def create(self, name: str, data: bytes) -> None:
        """Write an object; raises FileExistsError if there is one."""
        try:
            objects.create(self._url(name), data)
        except FileExistsError:
            self.bring(name, sure=True)
            raise
        self._note(name, data)

    def replace(self, name: str, data: bytes) -> None:
        """Write an object."""
        objects.write(self._url(name), data)
        self._note(name, data)

    def _note(self, name: str, data: bytes) -> None:
        if name.partition("/")[0] != LEASES:
            with self._lock:
                etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
                self._listed[name] = Info(self._url(name), len(data), etag, time.time_ns())

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects; none need exist."""
        for name in names:
            objects.remove([self._url(name)])
            with self._lock:
                self._listed.pop(name, None)

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return an object's bytes."""
        return objects.read(self._url(name), most_bytes)

    def now_ns(self) -> int:
        """Return the remote's own time, in nanoseconds since 1970: that of an object just written there."""
        url = f"{self.url}/clock/{uuid.uuid4().hex}"
        try:
            objects.write(url, b"")
            try:
                return objects.stat(url).modified_ns
            finally:
                objects.remove([url])
        except OSError:  # a remote that may only be read
            return time.time_ns()

    def refresh(self) -> None:
        """Bring the local copies of the index in step; a large index only if the last time was long ago."""
        with self._lock:
            age = time.monotonic() - self._began
            if self._seconds < 1 or age > self._seconds * _LISTINGS_PER_AGE:
                self._list()
            elif self._brought == self._began:
                return
            listed, began = dict(self._listed), self._began
        stale = [name for name, info in listed.items() if not self._is_current(name, info)]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(self._try_bring, stale))
        for name in self._local_names() - listed.keys():
            self._try_bring(name)  # it asks whether the object is there
        self._brought = began

    def bring_folder(self, folder: str) -> None:
        """Bring the local copies of a folder's objects in step."""
        start = len(self._url(folder)) - len(folder)
        listed = {info.url[start:]: info for info in self._below(self._url(folder))}
        for name, info in listed.items():
            if not self._is_current(name, info):
                with suppress(FileNotFoundError):
                    self._fetch(name, info)
        for entry in disk.entries(self.root / folder):
            if f"{folder}/{entry.name}" not in listed and not entry.is_dir():
                Path(entry.path).unlink(missing_ok=True)

    def bring(self, name: str, *, sure: bool = False) -> bool:
        """Bring the local copy of an object of the index in step."""
        with self._lock:
            if time.monotonic() - self._began > max(_FRESH_SECONDS, _LISTINGS_PER_AGE * self._seconds):
                self._list()
            info = self._listed.get(name)
        if info is None and (sure or (self.root / name).exists()):
            info = self._ask(name)
        if info is None:
            self.discard(name)
            return False
        if not self._is_current(name, info):
            try:
                self._fetch(name, info)
            except FileNotFoundError:  # removed a moment ago
                self.discard(name)
                return False
        return True

    def _try_bring(self, name: str) -> None:
        with suppress(OSError):  # reported when it is read
            self.bring(name, sure=True)

    def _ask(self, name: str) -> Info | None:
        try:
            with _answering(self.url):
                info = objects.stat(self._url(name))
        except FileNotFoundError:
            with self._lock:
                self._listed.pop(name, None)
            return None
        with self._lock:
            self._listed[name] = info
        return info

    def _list(self) -> None:
        began = time.monotonic()
        start = len(self._url(""))
        below = ((info.url[start:], info) for info in self._below(self._url("").rstrip("/")))
        self._listed = {name: info for name, info in below if _is_of_index(name)}
        self._began, self._seconds = began, time.monotonic() - began

    def _below(self, url: str) -> Iterator[Info]:
        """Yield the objects below a URL whose names can be those of local files."""
        with reported_as(f"{url} cannot be listed"), _answering(self.url):
            for info in objects.listed(url):
                name = info.url[len(url) + 1 :]
                if (rule := broken_rule(name)) is None:
                    yield info
                elif url not in _SAID:
                    _SAID.add(url)
                    _LOG.warning(
                        "%s: objects like %s are ignored: %s; no tokmill wrote it", url, shortened(name), rule
                    )

    def _local_names(self) -> set[str]:
        folders = [entry.name for entry in disk.entries(self.root) if entry.is_dir() and entry.name[0] != "."]
        names = set[str]()
        for folder in folders:
            if folder in _TREES:
                below = (path for path in (self.root / folder).rglob("*") if path.is_file())
                names |= {self.name_of(path) for path in below}
            elif folder not in (LEASES, "damaged"):
                places = disk.entries(self.root / folder)
                names |= {f"{folder}/{place.name}/{RECORD}" for place in places if place.is_dir()}
        return {name for name in names if not name.rpartition("/")[2].startswith(".")}

    def _is_current(self, name: str, info: Info) -> bool:
        path = self.root / name
        with suppress(OSError):
            state = path.lstat()
            if state.st_size == info.num_bytes:
                stamp = _stamp_of(info)
                if state.st_mtime_ns == stamp:
                    return True
                if hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == info.etag:
                    os.utime(path, ns=(stamp, stamp))
                    return True
        return False

    def _fetch(self, name: str, info: Info) -> None:
        path = self.root / name
        if info.num_bytes > _MOST_BYTES:
            raise OSError(errno.EINVAL, f"has more than {_MOST_BYTES} bytes", str(path))
        with _answering(self.url):
            data = objects.read(self._url(name), _MOST_BYTES)
        if path.name == RECORD and path.exists() and path.read_bytes() != data:
            self.discard(name)  # it was made again, with other files maybe
        disk.leave(path, data, _stamp_of(info))
        self._show_change(name)

    def discard(self, name: str) -> None:
        """Remove a local copy, of a record with all files; whoever has them open keeps them."""
        path = self.root / name
        if not path.parent.exists():
            return
        if path.name == RECORD:
            aside = self.root / ".cache" / f"old-{uuid.uuid4().hex}"
            aside.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                path.parent.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        self._show_change(name)

    def _show_change(self, name: str) -> None:
        """Give the folder a new time by which the catalog looks for changes (`tasks.store.indexing`)."""
        parts = name.split("/")
        folder = self.root.joinpath(*parts[: 2 if parts[0] in ("labels", "removed") else 1])
        with suppress(OSError):
            disk.touch(folder)

    def push(self, folder: Path, name: str) -> bool:
        """Publish the files in a folder, which holds the record as well."""
        record = (folder / RECORD).read_bytes()
        contents = Contents.of(record)
        url = files_url(self.url, name, contents.stored)
        with ThreadPoolExecutor(_AT_ONCE // 2) as threads:
            list(threads.map(lambda path: _send(folder / path, joined(url, path)), contents.files))
        try:
            self.create(f"{name}/{RECORD}", record)
        except FileExistsError:
            if self.contents(name).stored == contents.stored:
                shutil.copyfile(self.root / name / RECORD, folder / RECORD)
                return True
            objects.remove(joined(url, path) for path in contents.files)
            return False
        make_room(self.root, sum(entry.size_bytes for entry in contents.files.values()), folder)
        return True

    def contents(self, name: str) -> Contents:
        """Return what the local record of an artifact says of its files."""
        path = self.root / name / RECORD
        return _contents(path, path.stat().st_mtime_ns)

    def pull(self, name: str, paths: Sequence[str] | None = None) -> None:
        """Make files of an artifact local."""
        contents, folder = self.contents(name), self.root / name
        if paths is None:
            entries = list(contents.files.values())
        elif unknown := [path for path in paths if path not in contents.files]:
            raise FileNotFoundError(errno.ENOENT, "is not a file of the artifact", unknown[0])
        else:
            entries = [contents.files[path] for path in paths]
        with suppress(OSError):
            disk.touch(folder)
        if not any(_is_missing(folder, entry) for entry in entries):
            return
        lock = pulling_lock(folder)
        lock.acquire()
        try:
            missing = [entry for entry in entries if _is_missing(folder, entry)]
            make_room(self.root, sum(entry.size_bytes for entry in missing), folder)
            url = files_url(self.url, name, contents.stored)
            with ThreadPoolExecutor(_AT_ONCE // 2) as threads:
                list(threads.map(lambda entry: _pull_one(folder, entry, url), missing))
        finally:
            lock.release()

    def remove_artifact(self, name: str) -> None:
        """Delete an artifact: its record first, then all its files."""
        self.remove([f"{name}/{RECORD}"])
        objects.remove(info.url for info in list(objects.listed(f"{self.url}/{FILES}/{name}")))

    def damages(self, name: str, *, full: bool) -> Iterator[tuple[str, str]]:
        """Yield each file of an artifact that the remote does not have as published, and what is wrong."""
        contents = self.contents(name)
        url = files_url(self.url, name, contents.stored)
        there = {info.url[len(url) + 1 :]: info for info in self._below(url)}
        for path, entry in contents.files.items():
            if (info := there.get(path)) is None:
                yield path, "is missing"
            elif info.num_bytes != entry.size_bytes:
                yield path, f"has {info.num_bytes} bytes and was published with {entry.size_bytes}"
            elif full and (digest := digest_object(info)) != entry.digest:
                yield path, f"has digest {digest} and was published with {entry.digest}"
        for path in sorted(there.keys() - contents.files.keys()):
            yield path, "is not in the record"


def _is_of_index(name: str) -> bool:
    """Whether the store writes such names to the index; others must not become local files."""
    first, *rest = name.split("/")
    return first in _TREES or (is_kind(first) and len(rest) == 2 and rest[1] == RECORD)


@functools.lru_cache(maxsize=1024)
def _contents(path: Path, _mtime_ns: int) -> Contents:
    return Contents.of(path.read_bytes())


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


def _is_missing(folder: Path, entry: FileEntry) -> bool:
    try:
        return (folder / entry.path).lstat().st_size != entry.size_bytes
    except OSError:
        return True


def _send(file: Path, url: str) -> None:
    """Upload a file; a large one that is there already, from an attempt that was cut, is not sent again."""
    num_bytes = file.stat().st_size
    if num_bytes >= _LARGE_BYTES:
        with suppress(FileNotFoundError):
            if objects.stat(url).num_bytes == num_bytes:
                return
    objects.upload(file, url)


def _pull_one(folder: Path, entry: FileEntry, url: str) -> None:
    path = folder / entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        try:
            objects.download(joined(url, entry.path), temporary, entry.size_bytes)
        except FileNotFoundError as error:
            raise DamagedError(errno.EINVAL, "is missing in the remote", entry.path) from error
        except ChangedError as error:
            what = "was replaced in the remote, or is too short"
            raise DamagedError(errno.EINVAL, what, entry.path) from error
        if (digest := digest_file(temporary)) != entry.digest:
            what = f"has digest {digest} and was published with {entry.digest}"
            raise DamagedError(errno.EINVAL, what, entry.path)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class PulledPath(PosixPath):
    """A path below an artifact's local folder whose files are pulled when they are opened.

    Whatever opens, maps or measures a file asks the path for its name in the file system first
    (`os.fspath`), and that pulls it: a stage pulls what it opens and nothing else, and knows nothing of it.
    Who asks for the name of a folder may list it, so that pulls all that is in it. To ask whether a file is
    there pulls nothing, and neither does `str(path)`, a name to show. Paths made from it are such paths.
    """

    def __fspath__(self) -> str:
        text = str(self)
        contents, name, inside = self._artifact()
        if contents is not None:
            below = f"{inside}/" if inside else ""
            wanted = (
                [inside] if inside in contents.files else [p for p in contents.files if p.startswith(below)]
            )
            remote = remote_of(text)
            if wanted and remote is not None:
                try:
                    remote.pull(name, wanted)
                except DamagedError as error:  # named by its whole path, which tells the artifact
                    whole = f"{remote.root / name}/{error.filename}"
                    raise DamagedError(error.errno, error.strerror, whole) from error
        return text

    def _artifact(self) -> tuple[Contents | None, str, str]:
        """What is known of the artifact that the path leads into, its name, and the path inside it."""
        text = str(self)
        remote = remote_of(text)
        parts = text[len(str(remote.root)) + 1 :].split("/") if remote is not None else []
        if remote is None or len(parts) < 2:
            return None, "", ""
        name = "/".join(parts[:2])
        with suppress(FileNotFoundError):
            return remote.contents(name), name, "/".join(parts[2:])
        return None, name, ""

    def _is_listed(self) -> bool:
        contents, _, inside = self._artifact()
        return contents is not None and inside in contents.files

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such a file or folder."""
        return self._is_listed() or os.path.lexists(str(self))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such a file."""
        return self._is_listed() or os.path.isfile(str(self))  # noqa: PTH113 - a path would pull it

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such a folder."""
        return not self._is_listed() and os.path.isdir(str(self))  # noqa: PTH112 - a path would pull it


def pulled_when_opened(place: Path) -> Path:
    """Return an artifact's folder; in a store with a remote, as a path that pulls files when opened."""
    return PulledPath(place) if remote_of(place) else place


class Damage(NamedTuple):
    """What was damaged when it was pulled: the artifact's folder, and the error with a path inside it."""

    place: Path
    error: DamagedError


def damage_below(error: BaseException, places: Iterable[Path]) -> Damage | None:
    """Return the damage to an artifact in one of `places` that led to an error, if that is what did."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DamagedError):
        cause = cause.__cause__
    if cause is None:
        return None
    for place in places:
        inside = str(cause.filename).removeprefix(f"{place}/")
        if inside != cause.filename:
            return Damage(place, DamagedError(cause.errno, cause.strerror, inside))
    return None
