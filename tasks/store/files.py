"""A cache of source files' digests by (path, size, time), so that a rerun does not read terabytes again.

The cache assumes that every change of a file changes its size or time. A file modified so recently that it
could change again within the same clock tick is therefore digested but not cached. An object is known by its
URL, size and tag (its ETag and the time at which it was written), which are hints: the digest is always that
of its bytes. An object without a tag is never cached. `rehash` ignores the cache.

It is stored in `<store>/.cache/digests.sqlite`; deleting it costs only time. A cache that cannot be
used, because the disk is full or the store is read-only, is skipped with a warning.
"""

import logging
import os
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import refuse_irregular, unreadable
from tokmill.tasks.remote.location import Info, Location
from tokmill.tasks.remote.objects import stat
from tokmill.tasks.store.digest import digest_file, digest_object

_TICK_NS = 2_000_000_000  # the coarsest clock of the file systems in use (FAT: 2 s)
_LOG = logging.getLogger(__name__)
_WAIT_SECONDS = 30.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS files "
    "(path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digest TEXT) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS objects "
    "(url TEXT PRIMARY KEY, size INTEGER, tag TEXT, digest TEXT) WITHOUT ROWID;"
)


class FileDigests:
    """Digests of files outside of the store.

    Args:
        store_root: the store's folder, which holds the cache.
        rehash: read every file again, and cache the result.
    """

    def __init__(self, store_root: Path, rehash: bool = False) -> None:
        self._path = Path(store_root) / ".cache" / "digests.sqlite"
        self._rehash = rehash
        self._lock = threading.Lock()
        self._memory: sqlite3.Connection | None = None
        self._usable = True

    def digest(self, file: Path | Info) -> str:
        """Return the BLAKE2b-256 digest of a file's or an object's bytes in hexadecimal."""
        return self._of_object(file) if isinstance(file, Info) else self._of_file(file)

    def digest_at(self, file: Location) -> str:
        """Return the digest of a file or an object whose state is not known; see `digest`."""
        if isinstance(file, Path):
            return self._of_file(file)
        try:
            return self._of_object(stat(file.url))
        except OSError as error:
            raise unreadable(file, error) from error

    def _of_file(self, path: Path) -> str:
        absolute = Path(path).absolute()
        try:
            before = absolute.stat()
            refuse_irregular(absolute, before)
            known = None if self._rehash else self._recall(absolute, before)
            if known is not None:
                return known
            found = digest_file(absolute)
            after = absolute.stat()
        except OSError as error:
            raise unreadable(absolute, error) from error
        if _state(before) != _state(after):
            raise SourceError(f"{absolute} changed while it was read; run again when nothing writes to it")
        if time.time_ns() - after.st_mtime_ns > _TICK_NS:
            self._remember(absolute, after, found)
        return found

    def _of_object(self, state: Info) -> str:
        tag = state.tag
        key = (state.url, state.num_bytes, tag)
        if tag and not self._rehash:
            known = self._execute("SELECT digest FROM objects WHERE url=? AND size=? AND tag=?", key)
            if known:
                return known[0][0]
        try:
            found = digest_object(state)
        except OSError as error:
            raise unreadable(state.url, error) from error
        if tag:
            self._execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (*key, found))
        return found

    def _recall(self, path: Path, state: os.stat_result) -> str | None:
        key = (os.fsencode(path), *_state(state))
        rows = self._execute("SELECT digest FROM files WHERE path=? AND size=? AND mtime_ns=?", key)
        return rows[0][0] if rows else None

    def _remember(self, path: Path, state: os.stat_result, digest: str) -> None:
        self._execute(
            "INSERT OR REPLACE INTO files (path, size, mtime_ns, digest) VALUES (?, ?, ?, ?)",
            (os.fsencode(path), *_state(state), digest),
        )

    def _execute(self, statement: str, values: tuple[Any, ...]) -> list[tuple[str]]:
        with self._lock:
            try:
                return self._answer(statement, values) if self._usable else []
            except (sqlite3.OperationalError, OSError) as error:  # locked for long, not writable, no space
                self._usable = False
                _LOG.warning(
                    "%s cannot be used (%s): every source file is read for its digest; make room, or "
                    "get the right to write",
                    self._path,
                    error,
                )
                return []

    def _answer(self, statement: str, values: tuple[Any, ...]) -> list[tuple[str]]:
        try:
            return self._connected().execute(statement, values).fetchall()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            _LOG.warning("%s is damaged (%s); it is only a cache, and a new one is begun", self._path, error)
            self._forget()
            return self._connected().execute(statement, values).fetchall()

    def _connected(self) -> sqlite3.Connection:
        if self._memory is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._memory = _connect(self._path)
            self._close = weakref.finalize(self, self._memory.close)
        return self._memory

    def _forget(self) -> None:
        """Delete the cache."""
        if self._memory is not None:
            self._close()
            self._memory = None
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _state(state: os.stat_result) -> tuple[int, int]:
    return state.st_size, state.st_mtime_ns


def _connect(path: Path) -> sqlite3.Connection:
    memory = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        memory.execute("PRAGMA journal_mode=WAL")
        memory.execute("PRAGMA synchronous=OFF")  # losing a cache in a power cut is no loss
        memory.executescript(_SCHEMA)
    except BaseException:
        memory.close()
        raise
    return memory
