"""The catalog: a DuckDB index over the store's files, which are the truth; and runs, as it has them.

Before a query is answered, what is new is taken in, by replacing the file, or in a copy if it is busy or may
only be read. A rebuild is equal, row for row, to many small updates; what is corrupt is made again.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tokmill.tasks.core.database import NoDuckDBError
from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.disk import ProcessLock, reported_as
from tokmill.tasks.store.indexing import apply_changes, find_changes, stale_tables, sync_extra_tables
from tokmill.tasks.store.layout import Layout, printable, sweep
from tokmill.tasks.store.leases import Dead, Lease, lease_path, leased, read_leases
from tokmill.tasks.store.provenance import Provenance, as_text, utc_now
from tokmill.tasks.store.runs import (
    NOTHING,
    Begun,
    Found,
    Run,
    RunArtifact,
    State,
    read_run,
    run_path,
    write_run,
)
from tokmill.tasks.store.snapshot import (
    Answer,
    Ask,
    Parameters,
    Row,
    answer,
    answering,
    check_question,
    copied,
    reading,
    replacing,
)
from tokmill.tasks.store.tables import BrokenCatalogError, Report

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

# How long another process that replaces the file is waited for: before a rebuild fails, before an update
# leaves the rows to the next query, and before a query updates a copy of its own.
_REBUILD_SECONDS, _UPDATE_SECONDS, _QUESTION_SECONDS = 30.0, 2.0, 0.2
_POLL_SECONDS = 0.02
_LOG = logging.getLogger(__name__)
_WITHOUT_DUCKDB = set[Path]()  # the catalogs of which this process has said so
_UNREADABLE = "SELECT path, problem FROM catalog_files WHERE problem IS NOT NULL ORDER BY path"
_VERSIONS = """
    SELECT l.kind, l.name, l.label, l.number, l.fingerprint, a.content_digest, a.stage, a.stage_version,
           a.num_files, a.num_bytes, strftime(a.ended, '%Y-%m-%dT%H:%M:%SZ') AS ended, a.seconds,
           (SELECT coalesce(list(x.alias ORDER BY x.alias), []) FROM aliases x
            WHERE (x.kind, x.name, x.fingerprint) = (l.kind, l.name, l.fingerprint)) AS aliases
    FROM labels l JOIN artifacts a ON (a.kind, a.fingerprint) = (l.kind, l.fingerprint)
    WHERE coalesce(l.kind = $kind, true) AND coalesce(l.name = $name, true)
      AND ($every OR $kind IS NOT NULL OR NOT ends_with(l.kind, '_shard'))
    QUALIFY $every OR row_number() OVER (PARTITION BY l.kind, l.name ORDER BY l.number DESC) = 1
"""
_SORTED = f"{_VERSIONS} ORDER BY l.kind, l.name, l.number"
_MADE_LAST = f"""
    FROM (FROM ({_VERSIONS}) ORDER BY ended DESC, kind, name, number DESC LIMIT $most)
    ORDER BY kind, name, number
"""
_MADE_BY = """
    SELECT stage AS task, kind, name, fingerprint, content_digest, seconds, peak_bytes FROM artifacts
    WHERE run_id = $run_id AND started >= $began::TIMESTAMP ORDER BY started, fingerprint
"""


class Catalog:
    """The catalog of one store; queries raise StoreError if DuckDB rejects them or runs out of space.

    `report` receives one-line messages for people: a rebuild, a lag, a file that cannot be read.
    """

    def __init__(self, layout: Layout, report: Report = _LOG.warning) -> None:
        self._layout = layout
        self._say = report
        self.path = layout.catalog

    def query(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Return the rows of an SQL query over everything in the store, one dict per row."""
        return self.asked(lambda ask: ask(sql, parameters))

    def asked(self, work: Callable[[Ask], T]) -> T:
        """Do work that has several queries of one state; again, if the catalog has to be made anew."""

        def answered(connection: "DuckDBPyConnection") -> T:
            def ask(sql: str, parameters: Parameters = ()) -> list[Row]:
                columns, rows = answer(connection, sql, parameters)
                return [dict(zip(columns, row, strict=True)) for row in rows]

            return work(ask)

        return self._answered(answered)

    def table(self, sql: str, parameters: Parameters = ()) -> "pa.Table":
        """Return the rows of an SQL query as an Arrow table, whose columns have the query's types."""

        def answer(connection: "DuckDBPyConnection") -> "pa.Table":
            with answering(connection):
                return connection.sql(sql, params=parameters or None).to_arrow_table()

        return self._answered(answer)

    def ask_table(self, sql: str) -> "pa.Table":
        """Answer a user's query as `ask`, as an Arrow table."""
        check_question(sql)
        return self.table(sql)

    def ask(self, sql: str) -> Answer:
        """Answer a user's query: one SELECT statement that only reads."""
        check_question(sql)
        return self._answered(lambda connection: answer(connection, sql))

    def versions(
        self, kind: str | None = None, name: str | None = None, *, every: bool = True, most: int | None = None
    ) -> list[Row]:
        """Return one row per version (kind, name, label, …, aliases), sorted by kind, name and number.

        Unless `every` one, only the latest of each name, and shards only if their kind is given; and only the
        `most` that were made last.
        """
        wanted = {"kind": kind, "name": name, "every": every}
        return (
            self.query(_SORTED, wanted) if most is None else self.query(_MADE_LAST, wanted | {"most": most})
        )

    def rebuild(self) -> None:
        """Make the catalog again from the store's files."""
        shared.refresh(self._layout.root)
        self._replace(_REBUILD_SECONDS, anew=True)

    def update(self, report: Report | None = None) -> None:
        """Take in what is new, or report why the catalog lags; the next query adds the rows."""
        try:
            self._or_anew(lambda anew: self._replace(_UPDATE_SECONDS, anew=anew))
        except StoreError as error:
            if not (isinstance(error, NoDuckDBError) and self.path in _WITHOUT_DUCKDB):
                say = report or self._say
                say(f"{error} (published artifacts are safe; the next query adds them to the catalog)")
            if isinstance(error, NoDuckDBError):
                _WITHOUT_DUCKDB.add(self.path)

    def _answered(self, ask: Callable[["DuckDBPyConnection"], T]) -> T:
        shared.refresh(self._layout.root)
        try:
            sweep(self._layout)
            self.settle()
        except StoreError as error:  # without permission; a later process does it
            _LOG.info("%s", error)
        return self._or_anew(lambda anew: self._answer(ask, anew=anew))

    def _or_anew(self, work: Callable[[bool], T]) -> T:
        """Do work on the catalog; or, if there is none or its file is broken, on one that is made anew."""
        try:
            return work(not self.path.exists())
        except BrokenCatalogError as error:
            self._say(f"catalog {self.path} cannot be used ({error}); it is made again from the records")
            return work(True)

    def _answer(self, ask: Callable[["DuckDBPyConnection"], T], *, anew: bool) -> T:
        is_empty = anew and not any(self._layout.artifacts()) and not any(disk.entries(self._layout.runs))
        if not anew:
            with reading(self.path) as connection:
                if not (find_changes(connection, self._layout).any or stale_tables(connection)):
                    return self._told(connection, ask)
        catalog = self._copy(anew=anew)
        if not is_empty:  # a query does not make a store
            try:
                self._replace(_QUESTION_SECONDS, anew=anew)
                catalog = reading(self.path)
            except BrokenCatalogError:
                raise
            except StoreError as error:  # busy, or it cannot be written: a copy answers
                _LOG.debug("%s", error)
        with catalog as connection:
            return self._told(connection, ask)

    @contextmanager
    def _copy(self, *, anew: bool) -> Iterator["DuckDBPyConnection"]:
        with copied(self._layout, anew=anew) as connection:
            self._take_in(connection)
            yield connection

    def _told(self, connection: "DuckDBPyConnection", ask: Callable[["DuckDBPyConnection"], T]) -> T:
        for path, problem in connection.execute(_UNREADABLE).fetchall():
            self._say(f"the catalog leaves out {path}: {problem}")
        return ask(connection)

    def _replace(self, wait: float, *, anew: bool) -> None:
        lock, until = ProcessLock(self._layout.catalog_lock), time.monotonic() + wait
        while not lock.try_acquire():
            if time.monotonic() > until:
                raise StoreError(
                    f"the catalog is busy: {lock.owner()} has held {lock.path} for {wait:g} s; wait for it, "
                    "or end it if it hangs"
                )
            time.sleep(_POLL_SECONDS)
        try:
            with replacing(self._layout, anew=anew) as connection:
                self._take_in(connection)
        finally:
            lock.release()

    def _take_in(self, connection: "DuckDBPyConnection") -> None:
        apply_changes(connection, self._layout, find_changes(connection, self._layout))
        sync_extra_tables(connection, self._layout, self._say)

    def add_run(self, run_id: str, *, profile: str = "", begun: Begun | None = None) -> Run:
        """Record that a run has begun, with what is known of it; an earlier attempt is kept with it."""
        begun = begun or Begun(profile=profile, provenance=Provenance.collect(run_id=run_id))
        known: dict[str, Any] = {name: getattr(begun, name) for name in Begun.model_fields}
        path = run_path(self._layout.runs, run_id)
        if shared.bring(path, sure=True):
            before = read_run(path)
            how = "resume" if before.state == "suspended" else "retry"
            known["started_by"] = begun.started_by.model_copy(update={"how": how})
            if before.state == "running":
                ended = {"state": "crashed", "message": "it was begun again before it had ended"}
                before = before.model_copy(update=ended)
            known["earlier"] = before.as_earlier()
        return write_run(self._layout, Run(run_id=run_id, started=utc_now(), **known))

    def finish_run(self, run_id: str, *, state: State, message: str = "", found: Found = NOTHING) -> Run:
        """Record how a run ended, and what it has: the artifacts that it asked for, in order."""
        run = self.note_end(run_id, state=state, message=message, found=found)
        self.update()
        return run

    def note_end(self, run_id: str, *, state: State, message: str, found: Found = NOTHING) -> Run:
        """Record how a run ended, but only in its file, for lack of time; the next query adds the rows."""
        run = read_run(run_path(self._layout.runs, run_id))
        had = {"artifacts": [*found.artifacts], "inputs": [*found.inputs], "metrics": dict(found.metrics)}
        end = {"state": state, "message": printable(message), "ended": utc_now()}
        return write_run(self._layout, run.model_copy(update=end | had))

    def settle(self) -> None:
        """Record the end of runs whose process has died, and what they had made; StoreError if it cannot."""
        settled = list[Run]()
        for lease in read_leases(self._layout).values():
            if isinstance(lease, Dead):
                with suppress(StoreError):  # it was never written, or is reported when its rows are read
                    run = read_run(run_path(self._layout.runs, lease.key))
                    if run.state == "running":
                        heard = as_text(datetime.fromtimestamp(lease.heard_ns / 1e9, UTC))
                        end = {"state": "crashed", "message": lease.words, "ended": max(heard, run.started)}
                        settled.append(write_run(self._layout, run.model_copy(update=end)))
                with reported_as(f"run {lease.key} cannot be recorded"):
                    shared.remove(lease_path(self._layout, lease.key))
        with suppress(NoDuckDBError):
            for run in settled:
                rows = self.query(_MADE_BY, {"run_id": run.run_id, "began": run.started})
                made = [RunArtifact(how="made", ref=ArtifactRef(**row), **row) for row in rows]
                if made and not run.artifacts:
                    write_run(self._layout, run.model_copy(update={"artifacts": made}))

    @contextmanager
    def alive(self, run_id: str, profile: str = "") -> Iterator[Lease]:
        """Mark this process as executing a run, for the length of the block, and hold what the run needs."""
        with leased(self._layout, run_id, names=profile) as lease:
            try:
                yield lease
            finally:
                lease.is_kept = self._goes_on(run_id)

    def _goes_on(self, run_id: str) -> bool:
        """Whether a run has no end on record: it could not be written, as on a full disk."""
        try:
            return read_run(run_path(self._layout.runs, run_id)).state == "running"
        except MachineError:  # a remote that does not answer takes no end either
            return True
        except StoreError:  # its beginning was not written
            return False
