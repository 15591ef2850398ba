"""The files of artifacts in a store's remote: `<url>/files/<kind>/<prefix>/<stored[:16]>/<path>`.

Pushed before the record, whose conditional write is the commit; pulled when first opened, and compared with
the record. Local files take at most TOKMILL_CACHE_BYTES (by default half of the free disk), and the longest
unused artifact goes first; rather too much than a run that fails.
"""

import errno
import functools
import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PosixPath
from typing import Final, NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.remote import objects
from tokmill.tasks.remote.faults import ChangedError
from tokmill.tasks.remote.location import Info
from tokmill.tasks.store import disk
from tokmill.tasks.store.digest import FileEntry, digest_file, digest_object, stored_digest
from tokmill.tasks.store.disk import DamagedError, ProcessLock, holding
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.shared import remote_of

CACHE_BYTES: Final = "TOKMILL_CACHE_BYTES"
_LARGE_BYTES = 4 << 20  # from this size on, to ask whether a file is there costs little beside sending it
_AT_ONCE = 8
_LOOK_SECONDS = 30.0
_CONTENT_CHARS = 16
_UNITS = {"": 1, **{f"{unit}B": 1000**power for power, unit in enumerate("KMGT", 1)}}
_UNITS |= {f"{unit}iB": 1024**power for power, unit in enumerate("KMGT", 1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]i?B)?")
_ROOM: dict[Path, tuple[float, int]] = {}  # of each cache: when this process looked, and the bytes free since
_ROOM_LOCK = threading.Lock()
_LOG = logging.getLogger(__name__)


class Contents(NamedTuple):
    """What a record says of an artifact's files: the digest of their bytes, and each by its path."""

    stored: str
    files: Mapping[str, FileEntry]


@functools.lru_cache(maxsize=1024)
def _contents(place: str, _mtime_ns: int) -> Contents:
    files = read_record(Path(place)).files
    return Contents(stored_digest(files)[:_CONTENT_CHARS], {each.path: each for each in files})


def contents_of(place: Path) -> Contents:
    """Return what the local record of an artifact says of its files; FileNotFoundError if there is none."""
    return _contents(str(place), os.lstat(f"{place}/{RECORD_FILE}").st_mtime_ns)


def files_url(place: Path, path: str = "", contents: Contents | None = None) -> str:
    """Return the URL of an artifact's files, or of one of them; empty without a remote."""
    remote = remote_of(place)
    if remote is None:
        return ""
    name, stored = remote.name_of(Path(str(place))), (contents or contents_of(place)).stored
    return "/".join(part for part in (remote.url, "files", name, stored, path) if part)


def push(folder: Path, place: Path) -> bool:
    """Publish the files in a folder, which holds the record as well; return whether nobody was first."""
    remote = remote_of(place)
    if remote is None:
        return True
    contents = contents_of(folder)
    url = files_url(place, contents=contents)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda path: _send(folder / path, f"{url}/{path}"), contents.files))
    try:
        remote.create(place / RECORD_FILE, (folder / RECORD_FILE).read_bytes())
    except FileExistsError:
        if contents_of(place).stored == contents.stored:
            shutil.copyfile(place / RECORD_FILE, folder / RECORD_FILE)
            return True
        objects.remove(f"{url}/{path}" for path in contents.files)
        return False
    make_room(remote.root, sum(entry.size_bytes for entry in contents.files.values()), folder)
    return True


def _send(file: Path, url: str) -> None:
    """Upload a file; a large one that is there already, from an attempt that was cut, is not sent again."""
    num_bytes = file.stat().st_size
    if num_bytes >= _LARGE_BYTES:
        with suppress(FileNotFoundError):
            if objects.stat(url).num_bytes == num_bytes:
                return
    objects.upload(file, url)


def pull(place: Path, paths: Sequence[str] | None = None) -> None:
    """Make files of an artifact local, by default all."""
    remote = remote_of(place)
    if remote is None:
        return
    contents, folder = contents_of(place), Path(str(place))
    if paths is not None and (unknown := [path for path in paths if path not in contents.files]):
        raise FileNotFoundError(errno.ENOENT, "is not a file of the artifact", unknown[0])
    entries = [contents.files[path] for path in (contents.files if paths is None else paths)]
    with suppress(OSError):
        disk.touch(folder)
    if not any(_is_missing(folder, entry) for entry in entries):
        return
    with holding(_pulling_lock(folder), lambda who: None):
        missing = [entry for entry in entries if _is_missing(folder, entry)]
        make_room(remote.root, sum(entry.size_bytes for entry in missing), folder)
        url = files_url(folder, contents=contents)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda entry: _pull_one(folder, entry, url), missing))


def _is_missing(folder: Path, entry: FileEntry) -> bool:
    try:
        return (folder / entry.path).lstat().st_size != entry.size_bytes
    except OSError:
        return True


def _pull_one(folder: Path, entry: FileEntry, url: str) -> None:
    path = folder / entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        objects.download(Info(f"{url}/{entry.path}", entry.size_bytes), temporary)
        if (digest := digest_file(temporary)) != entry.digest:
            what = f"has digest {digest} and was published with {entry.digest}"
            raise DamagedError(errno.EINVAL, what, entry.path)
        temporary.replace(path)
    except FileNotFoundError as error:
        raise DamagedError(errno.EINVAL, "is missing in the remote", entry.path) from error
    except ChangedError as error:
        raise DamagedError(errno.EINVAL, "was replaced in the remote, or is too short", entry.path) from error
    finally:
        temporary.unlink(missing_ok=True)


def remove_pushed(place: Path) -> None:
    """Delete an artifact from the remote: its record first, then all its files."""
    if remote := remote_of(place):
        files = f"{remote.url}/files/{remote.name_of(place)}"
        objects.remove([remote.url_of(place / RECORD_FILE)])
        remote.forget(place / RECORD_FILE)
        objects.remove([info.url for info in objects.listed(files)])


def remote_damages(place: Path, *, full: bool) -> Iterator[tuple[str, str]]:
    """Yield each file of an artifact that the remote does not have as published, and what is wrong."""
    remote = remote_of(place)
    if remote is None:
        return
    contents = contents_of(place)
    url = files_url(place, contents=contents)
    there = {info.url[len(url) + 1 :]: info for info in remote.below(url)}
    for path, entry in contents.files.items():
        if (info := there.get(path)) is None:
            yield path, "is missing"
        elif info.num_bytes != entry.size_bytes:
            yield path, f"has {info.num_bytes} bytes and was published with {entry.size_bytes}"
        elif full and (digest := digest_object(info)) != entry.digest:
            yield path, f"has digest {digest} and was published with {entry.digest}"
    for path in sorted(there.keys() - contents.files.keys()):
        yield path, "is not in the record"


class PulledPath(PosixPath):
    """A path below an artifact's local folder whose files are pulled when they are opened.

    Whatever opens, maps or measures a file asks the path for its name in the file system first
    (`os.fspath`), and that pulls it: a stage pulls what it opens and nothing else, and knows nothing of it.
    Who asks for the name of a folder may list it, so that pulls all that is in it. To ask whether a file is
    there pulls nothing, and neither does `str(path)`, a name to show. Paths made from it are such paths.
    """

    def __fspath__(self) -> str:
        text = str(self)
        contents, place, inside = self._artifact()
        if contents is not None:
            below = f"{inside}/" if inside else ""
            files = contents.files
            wanted = [inside] if inside in files else [path for path in files if path.startswith(below)]
            try:
                if wanted:
                    pull(place, wanted)
            except DamagedError as error:  # named by its whole path, which tells the artifact
                raise DamagedError(error.errno, error.strerror, f"{place}/{error.filename}") from error
        return text

    def _artifact(self) -> tuple[Contents | None, Path, str]:
        text = str(self)
        remote = remote_of(text)
        parts = text[len(str(remote.root)) + 1 :].split("/") if remote is not None else []
        if remote is None or len(parts) < 2:
            return None, Path(text), ""
        place = remote.root.joinpath(*parts[:2])
        with suppress(FileNotFoundError, StoreError):  # which whoever reads the record is told
            return contents_of(place), place, "/".join(parts[2:])
        return None, place, ""

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


def damage_below(error: BaseException, places: Iterable[Path]) -> tuple[Path, DamagedError] | None:
    """Return the artifact of `places` whose damage led to an error, with a path inside it; None otherwise."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DamagedError):
        cause = cause.__cause__
    if cause is None:
        return None
    for place in places:
        inside = str(cause.filename).removeprefix(f"{place}/")
        if inside != cause.filename:
            return place, DamagedError(cause.errno, cause.strerror, inside)
    return None


def make_room(root: Path, num_bytes: int, keep: Path) -> None:
    """Take away the longest unused files until there is room for so many more bytes."""
    home = root.parent
    with _ROOM_LOCK:
        looked, room = _ROOM.get(home, (float("-inf"), 0))
        if room < num_bytes or time.monotonic() - looked > _LOOK_SECONDS:
            with holding(ProcessLock(home / ".room.lock"), lambda who: None):
                looked, room = time.monotonic(), _cleared(home, num_bytes, keep)
        _ROOM[home] = looked, room - num_bytes


def _pulling_lock(folder: Path) -> ProcessLock:
    return ProcessLock(folder.parents[1] / ".cache" / f"pulling-{folder.parent.name}-{folder.name}.lock")


def _cleared(home: Path, needed: int, keep: Path) -> int:
    cached = sorted(_cached(home))
    total = sum(num_bytes for _, num_bytes, _ in cached)
    room = _limit(home, total) - total
    for _, num_bytes, folder in cached:
        if room >= needed:
            break
        lock = _pulling_lock(folder)
        if folder != keep and lock.try_acquire():  # else its files are on their way
            try:
                for entry in disk.entries(folder):
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    elif entry.name != RECORD_FILE:
                        Path(entry.path).unlink(missing_ok=True)
            finally:
                lock.release()
            room += num_bytes
    if room < needed:
        said = "%s is over its limit by %d bytes; raise %s, or use less at a time"
        _LOG.warning(said, home, needed - room, CACHE_BYTES)
    return room


def _cached(home: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield when an artifact with local files was last used, their bytes, and its folder."""
    for record in home.glob(f"[0-9a-f]*/[a-z]*/*/{RECORD_FILE}"):
        folder = record.parent
        with suppress(OSError):
            files = (path for path in folder.rglob("*") if path != record and path.is_file())
            if num_bytes := sum(path.lstat().st_size for path in files):
                yield folder.stat().st_mtime_ns, num_bytes, folder


def _limit(home: Path, cached: int) -> int:
    setting = os.environ.get(CACHE_BYTES)
    if not setting:
        return (shutil.disk_usage(home).free + cached) // 2
    size = _SIZE.fullmatch(setting)
    if size is None:
        raise StoreError(f"{CACHE_BYTES}={setting!r} must be a number of bytes, or a size such as 200GB")
    return int(float(size[1]) * _UNITS[size[2] or ""])
