"""The local folders of stores that have a remote: where they are, and how much of the disk they may take.

    <cache>/tokmill/stores/<digest of the URL>/    a store's folder, with the layout of any other store
    <cache>/tokmill/stores/<digest>/.url           its URL

The cache is `$TOKMILL_CACHE`, else `$XDG_CACHE_HOME`, else `~/.cache`. A folder of it may be deleted while no
process uses it: that costs the time to pull again.

Artifacts' files have at most TOKMILL_CACHE_BYTES in all these folders, by default half of what the disk would
have free without them. When room is needed, they go artifact by artifact, the longest unused first; records
stay. What goes while it is used is pulled again when it is next opened (`tasks.store.remote.PulledPath`); a
file that is open or mapped stays readable. A single artifact that is larger exceeds the limit: rather too
much than a run that fails.
"""

import hashlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tokmill.tasks.core.errors import RemoteError, StoreError
from tokmill.tasks.store import disk
from tokmill.tasks.store.disk import ProcessLock

CACHE_BYTES: Final = "TOKMILL_CACHE_BYTES"
RECORD: Final = "record.json"
_MARK: Final = "/tokmill/stores/"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_URL_FILE = ".url"
_DIGEST_CHARS = 16
_LOOK_SECONDS = 30.0
_UNITS = {"": 1, **{f"{unit}B": 1000**power for power, unit in enumerate("KMGT", 1)}}
_UNITS |= {f"{unit}iB": 1024**power for power, unit in enumerate("KMGT", 1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]i?B)?")
_LOG = logging.getLogger(__name__)


def local_root(location: str) -> Path:
    """Return the folder of the store at a path or URL: the path itself, or the local folder of the URL."""
    scheme = _SCHEME.match(location)
    if scheme is None:
        try:
            return Path(location).expanduser()
        except RuntimeError as error:
            raise StoreError(f"store {location}: {error} Write the path in full") from error
    try:
        url = urlsplit(location)
    except ValueError as error:
        raise StoreError(f"store {location!r} is not a URL: {error}") from error
    if scheme[1].lower() not in ("file", "local"):
        return _folder_of(location.rstrip("/"))
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
        shown = without_secrets(url).partition("?")[0].partition("#")[0]
        raise StoreError(
            f"store {shown}: a store's URL has no query or fragment; settings and credentials come from the "
            "environment"
        )
    cache = os.environ.get("TOKMILL_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    digest = hashlib.sha256(url.encode("utf-8")).hexdigest()[:_DIGEST_CHARS]
    root = Path(f"{Path(cache).expanduser().absolute()}{_MARK}{digest}")
    try:
        if not (root / _URL_FILE).is_file():
            disk.leave(root / _URL_FILE, f"{url}\n".encode())
    except OSError as error:
        raise StoreError(
            f"store {url}: its local cache {root} cannot be written ({error.strerror}); name another folder "
            "with TOKMILL_CACHE"
        ) from error
    return root


def root_in(path: Path | str) -> Path | None:
    """Return the local folder of a store with a remote that a path leads into, or None."""
    before, mark, after = str(path).partition(_MARK)
    digest = after.partition("/")[0]
    return Path(f"{before}{mark}{digest}") if len(digest) == _DIGEST_CHARS else None


def url_of(path: Path | str) -> str | None:
    """Return the URL of the store whose local folder a path leads into; None if it leads into none."""
    root = root_in(path)
    if root is not None:
        with suppress(OSError):
            return (root / _URL_FILE).read_text(encoding="utf-8").strip()
    return None


_ROOM: dict[Path, tuple[float, int]] = {}  # of each cache: when this process looked, and the bytes free since
_ROOM_LOCK = threading.Lock()


def make_room(root: Path, num_bytes: int, keep: Path) -> None:
    """Take away the longest unused files until there is room for so many more bytes."""
    home = root.parent
    with _ROOM_LOCK:
        looked, room = _ROOM.get(home, (float("-inf"), 0))
        if room < num_bytes or time.monotonic() - looked > _LOOK_SECONDS:
            lock = ProcessLock(home / ".room.lock")
            lock.acquire()
            try:
                looked, room = time.monotonic(), _cleared(home, num_bytes, keep)
            finally:
                lock.release()
        _ROOM[home] = looked, room - num_bytes


def pulling_lock(folder: Path) -> ProcessLock:
    """Return the lock of an artifact's folder that is held while files come into it, or are taken away."""
    return ProcessLock(folder.parents[1] / ".cache" / f"pulling-{folder.parent.name}-{folder.name}.lock")


def _cleared(home: Path, needed: int, keep: Path) -> int:
    """Return the room there is, after taking away what is needed."""
    cached = sorted(_cached(home))
    total = sum(num_bytes for _, num_bytes, _ in cached)
    room = _limit(home, total) - total
    for _, num_bytes, folder in cached:
        if room >= needed:
            break
        lock = pulling_lock(folder)
        if folder != keep and lock.try_acquire():  # else its files are on their way
            try:
                _take_away(folder)
            finally:
                lock.release()
            room += num_bytes
    if room < needed:
        _LOG.warning(
            "%s is over its limit by %d bytes; raise %s, or use less at a time",
            home,
            needed - room,
            CACHE_BYTES,
        )
    return room


def _cached(home: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield when an artifact with local files was last used, their bytes, and its folder."""
    for record in home.glob(f"[0-9a-f]*/[a-z]*/*/{RECORD}"):
        folder = record.parent
        with suppress(OSError):
            files = (path for path in folder.rglob("*") if path != record and path.is_file())
            if num_bytes := sum(path.lstat().st_size for path in files):
                yield folder.stat().st_mtime_ns, num_bytes, folder


def _take_away(folder: Path) -> None:
    for entry in disk.entries(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != RECORD:
            Path(entry.path).unlink(missing_ok=True)


def _limit(home: Path, cached: int) -> int:
    asked = os.environ.get(CACHE_BYTES)
    if not asked:
        return (shutil.disk_usage(home).free + cached) // 2
    size = _SIZE.fullmatch(asked)
    if size is None:
        raise StoreError(f"{CACHE_BYTES}={asked!r} must be a number of bytes, or a size such as 200GB")
    return int(float(size[1]) * _UNITS[size[2] or ""])
