"""The cache of artifacts' files in all mirrors: what is in use, and what goes when room is needed.

    <mirrors>/.users/<pid>-<token>     locked by its process as long as it lives; lists what the process uses
    <mirrors>/.users/room.lock         held while files are taken away, and shared while a use begins

Files are taken away artifact by artifact, the longest unused first, and never while a process of this machine
uses them; their records stay. What arrives when it is opened (`tasks.store.arriving`) is in use until 32
other artifacts have arrived in this process. The limit is TOKMILL_CACHE_BYTES, by default half of what the
disk would have free without the cache. If all that could go is in use, the limit is exceeded rather than a
run failed.
"""

import fcntl
import functools
import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.keys import RECORD

CACHE_BYTES = "TOKMILL_CACHE_BYTES"
_USERS = ".users"
_LOOK_SECONDS = 30.0
_A_WHILE = 32
_UNITS = {"": 1, **{f"{unit}B": 1000**power for power, unit in enumerate("KMGT", 1)}}
_UNITS |= {f"{unit}iB": 1024**power for power, unit in enumerate("KMGT", 1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]i?B)?")
_LOG = logging.getLogger(__name__)


class _Cached(NamedTuple):
    """The local files of one artifact: when they were used last, their bytes, and their folder."""

    used_ns: int
    num_bytes: int
    folder: Path


def uses_in(home: Path) -> "Uses":
    """Return this process's uses of the mirrors in a folder."""
    return _uses(home, os.getpid())


@functools.lru_cache(maxsize=64)
def _uses(home: Path, process: int) -> "Uses":
    return Uses(home / _USERS / f"{process}-{uuid.uuid4().hex[:8]}")


class Uses:
    """What this process uses; may be used by threads.

    Args:
        path: the file that says so, in the folder of users.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._home = path.parent.parent
        self._lock = threading.RLock()
        self._recent = OrderedDict[Path, None]()
        self._descriptor: int | None = None
        self._counts: Counter[Path] = Counter()
        self._looked = float("-inf")
        self._room = 0

    def begin(self, folder: Path) -> None:
        """Keep an artifact's files from now on."""
        with self._lock:
            self._counts[folder] += 1
            if self._counts[folder] == 1:
                with self._taking_away(fcntl.LOCK_SH):
                    self._note("+", folder)
            with suppress(OSError):
                os.utime(folder)

    def end(self, folder: Path) -> None:
        """Let an artifact's files go, unless they are in use otherwise."""
        with self._lock:
            if self._counts[folder]:
                self._counts[folder] -= 1
                if not self._counts[folder]:
                    self._note("-", folder)

    def keep_a_while(self, folder: Path) -> None:
        """Keep an artifact's files until so many others were kept in this way, or `end_a_while`."""
        with self._lock:
            if folder not in self._recent:
                self.begin(folder)
                self._recent[folder] = None
            self._recent.move_to_end(folder)
            if len(self._recent) > _A_WHILE:
                self.end(self._recent.popitem(last=False)[0])

    def end_a_while(self, folder: Path) -> None:
        """Let an artifact's files go that were kept for a while."""
        with self._lock:
            if folder in self._recent:
                del self._recent[folder]
                self.end(folder)

    def make_room(self, num_bytes: int) -> None:
        """Take away what is not in use until there is room for so many more bytes."""
        with self._lock:
            if self._room < num_bytes or time.monotonic() - self._looked > _LOOK_SECONDS:
                with self._taking_away(fcntl.LOCK_EX):
                    self._room = self._cleared(num_bytes)
                    self._looked = time.monotonic()
            self._room -= num_bytes

    def _cleared(self, needed: int) -> int:
        """Return the room there is, after taking away what is needed."""
        cached = sorted(_cached(self._home))
        total = sum(each.num_bytes for each in cached)
        room = _limit(self._home, total) - total
        kept = self._in_use() if room < needed else set()
        for each in cached:
            if room >= needed:
                break
            if each.folder not in kept:
                _take_away(each.folder)
                room += each.num_bytes
        if room < needed:
            _LOG.warning(
                "%s is over its limit by %d bytes, because all files in it are in use; raise %s, or use less "
                "at a time",
                self._home,
                needed - room,
                CACHE_BYTES,
            )
        return room

    def _in_use(self) -> set[Path]:
        used: set[Path] = set()
        for path in self._path.parent.iterdir():
            if path.name == "room.lock":
                continue
            if path != self._path and _is_dead(path):
                path.unlink(missing_ok=True)
                continue
            used |= _listed(path)
        return used

    def _note(self, sign: str, folder: Path) -> None:
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, flags, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, f"{sign}{folder}\n".encode("utf-8", "surrogateescape"))

    @contextmanager
    def _taking_away(self, how: int) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path.parent / "room.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


def _is_dead(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _listed(path: Path) -> set[Path]:
    """Return what a process uses, by the lines that it wrote."""
    used: set[Path] = set()
    for line in path.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]:
        (used.add if line[0] == "+" else used.discard)(Path(line[1:]))
    return used


def _cached(home: Path) -> Iterator[_Cached]:
    """The artifacts of all mirrors that have local files."""
    for record in home.glob(f"[0-9a-f]*/[a-z]*/*/{RECORD}"):
        folder = record.parent
        with suppress(OSError):
            num_bytes = sum(path.lstat().st_size for path in _files(folder))
            if num_bytes:
                yield _Cached(folder.stat().st_mtime_ns, num_bytes, folder)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path != folder / RECORD and path.is_file()]


def _take_away(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != RECORD:
            path.unlink(missing_ok=True)


def _limit(home: Path, cached: int) -> int:
    asked = os.environ.get(CACHE_BYTES)
    if not asked:
        return (shutil.disk_usage(home).free + cached) // 2
    found = _SIZE.fullmatch(asked)
    if found is None:
        raise StoreError(f"{CACHE_BYTES}={asked!r} must be a number of bytes, or a size such as 200GB")
    return int(float(found[1]) * _UNITS[found[2] or ""])
