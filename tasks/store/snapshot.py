"""Query the catalog's snapshot as the store is now, and replace it where that is needed.

A query looks for what differs between the snapshot and the store (`tasks.store.indexing`), and is answered

    as it is              nothing differs
    beside the snapshot   it is large, busy, not writable, or was written a moment ago and nothing has gone
                          since (so that many readers beside a writer do not all write it): new rows are
                          read into memory
                          (`tasks.store.beside`)
    after an update       otherwise: the snapshot is replaced first (`tasks.store.connection`)

A snapshot that is missing, broken or of an earlier version is made again, with a message; where it cannot be
written, it is made in memory.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.beside import show_beside
from tokmill.tasks.store.catalog_schema import BrokenCatalogError
from tokmill.tasks.store.connection import (
    has_snapshot,
    locked,
    private,
    reading,
    replacing,
    snapshot_age_seconds,
    snapshot_bytes,
)
from tokmill.tasks.store.extra_tables import extra_tables_in_step, sync_extra_tables
from tokmill.tasks.store.indexing import (
    Report,
    find_difference,
    num_indexed,
    read_files,
    sync_files,
)
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.stamps import look_over

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

_MOMENT_SECONDS = 1.0
_BYTES_PER_SECOND = 200 << 20  # of writing the snapshot anew, by a process that has not done so yet
_MOMENTS_PER_WRITE = 20  # publications may take a twentieth of the time for the catalog, however large it is
_WRITE_SECONDS: dict[Path, float] = {}  # duration of this process's last write of each catalog


class Snapshot:
    """The snapshot of one store's catalog.

    Args:
        layout: the store.
        wait_seconds: how long `sync` and `rebuild` wait for other processes before that is an error.
        question_wait_seconds: how long a query waits before it reads the new rows into memory instead.
        report: receives one-line messages for people: a rebuild, a file that cannot be read.
        large_bytes: a larger snapshot is not written for a few rows.
        most_beside: how many new files a query reads into memory instead of writing the snapshot.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        wait_seconds: float,
        question_wait_seconds: float,
        report: Report,
        large_bytes: int,
        most_beside: int,
    ) -> None:
        self._layout = layout
        self._path = layout.catalog
        self._wait = wait_seconds
        self._question_wait = question_wait_seconds
        self._say = report
        self._large_bytes = large_bytes
        self._most_beside = most_beside

    def answered(self, ask: Callable[["DuckDBPyConnection"], T], *, lineage: bool = True) -> T:
        """Query the catalog as it is now; a broken one is made again.

        Args:
            ask: is given a connection to it.
            lineage: whether it may use the views of lineage.

        Raises:
            StoreError: DuckDB rejects the query, or runs out of space.
        """
        try:
            return self._ask(ask, lineage=lineage)
        except BrokenCatalogError as error:
            self._say_broken(error)
            return self._ask_again(self.rebuild, ask)

    def as_written(self, ask: Callable[["DuckDBPyConnection"], T]) -> T:
        """Query the catalog as somebody last wrote it.

        Raises:
            StoreError: there is none, it has to be made again, or DuckDB rejects the query.
        """
        with reading(self._path) as connection:
            return ask(connection)

    def sync(self) -> None:
        """Add the rows of new and changed files, and drop those of files that no longer exist.

        Raises:
            StoreError: another process holds the catalog for too long.
        """
        self.replace(self._wait, partial(self._sync, thorough=True))

    def rebuild(self) -> None:
        """Make the catalog again from the store's files.

        Raises:
            StoreError: another process holds the catalog for too long.
        """
        with (
            locked(self._layout.catalog_lock, self._wait),
            replacing(self._layout, anew=True) as connection,
        ):
            self.take_in(connection)

    def is_large(self) -> bool:
        """Whether writing the snapshot takes so long that it is not done for a few rows."""
        return snapshot_bytes(self._path) > self._large_bytes

    def was_just_written(self) -> bool:
        """Whether the snapshot is so new that writing it again would take too large a share of the time."""
        last = max(_WRITE_SECONDS.get(self._path, 0.0), snapshot_bytes(self._path) / _BYTES_PER_SECOND)
        return 0 <= snapshot_age_seconds(self._path) < max(_MOMENT_SECONDS, _MOMENTS_PER_WRITE * last)

    def replace(self, wait: float, work: Callable[["DuckDBPyConnection"], T]) -> T:
        """Do `work` on a copy that then replaces the catalog; a broken catalog is made again first."""
        with locked(self._layout.catalog_lock, wait):
            began = time.monotonic()
            try:
                with replacing(self._layout, anew=not has_snapshot(self._path)) as connection:
                    done = work(connection)
                _WRITE_SECONDS[self._path] = time.monotonic() - began
                return done  # noqa: TRY300 - what fails is made good below
            except BrokenCatalogError as error:
                self._say_broken(error)
            with replacing(self._layout, anew=True) as connection:
                self.take_in(connection)
                return work(connection)

    def take_in(self, connection: "DuckDBPyConnection", *, thorough: bool = False) -> None:
        """Update the rows of a copy of the snapshot from all that is new in the store."""
        sync_files(connection, self._layout, self._say, thorough=thorough)
        sync_extra_tables(connection, self._layout, self._say)

    def _sync(self, connection: "DuckDBPyConnection", *, thorough: bool = False) -> None:
        was_empty = num_indexed(connection) == 0
        self.take_in(connection, thorough=thorough)
        if was_empty and (num_files := num_indexed(connection)):
            self._say(f"catalog {self._path} was empty; it is made again from {num_files} files of the store")

    def _ask(self, ask: Callable[["DuckDBPyConnection"], T], *, lineage: bool) -> T:
        """Query the snapshot, with what is new beside it; or update it first, if that is little work."""
        if not has_snapshot(self._path):
            if look_over(self._layout, {}).stamps:
                return self._ask_again(partial(self.replace, self._question_wait, self._sync), ask)
            with private(lineage=lineage) as connection:  # a query must not create a store
                return ask(connection)
        unread = list[str]()
        with reading(self._path) as connection:
            difference = find_difference(connection, self._layout)
            if len(difference) <= self._most_beside:
                read = read_files(self._layout, difference.changed, unread.append)
                is_same = not difference.stale and not read.rows["catalog_files"]
                is_same = is_same and extra_tables_in_step(connection, self._layout)
                is_beside = self.is_large() or (self.was_just_written() and not difference.gone)
                if is_same or is_beside:
                    self._say_each(unread)
                    if not is_same:
                        show_beside(connection, self._layout, difference, read, self._say, lineage=lineage)
                    return ask(connection)
        return self._ask_updated(ask)

    def _ask_updated(self, ask: Callable[["DuckDBPyConnection"], T]) -> T:
        """Query the snapshot after an update; if it cannot be written now, with what is new beside it."""
        try:
            self.replace(self._question_wait, self._sync)
        except BrokenCatalogError:
            raise
        except StoreError:  # busy, or not writable
            with reading(self._path) as connection:
                difference = find_difference(connection, self._layout)
                read = read_files(self._layout, difference.changed, self._say)
                show_beside(connection, self._layout, difference, read, self._say)
                return ask(connection)
        with reading(self._path) as connection:
            return ask(connection)

    def _ask_again(self, repair: Callable[[], None], ask: Callable[["DuckDBPyConnection"], T]) -> T:
        """Query a catalog that was made again; if it cannot be written, one in memory."""
        try:
            repair()
        except StoreError:  # busy, or not writable
            with private() as connection:
                self.take_in(connection)
                return ask(connection)
        with reading(self._path) as connection:
            return ask(connection)

    def _say_each(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._say(line)

    def _say_broken(self, error: BrokenCatalogError) -> None:
        self._say(f"catalog {self._path} cannot be used ({error}); it is made again from the records")
