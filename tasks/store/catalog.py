"""The catalog: a DuckDB index over the store's files, for queries across artifacts.

The files are the truth. The catalog may lag behind them but is never ahead. The laws:

- before a query is answered, files that are new or changed are found (see `tasks.store.indexing`) and read;
- `rebuild` makes the catalog again from the files, row for row equal to the result of many small updates
  (a label whose artifact was gone before anybody asked is seen by `sync` and `rebuild` alone);
- `catalog.duckdb` is a snapshot that is never written in place: a change is made in a copy, which is renamed
  to the snapshot's name (see `tasks.store.snapshot`). So readers neither block
  others nor are blocked;
- only processes that replace the snapshot wait for each other, with a file lock and a time limit. A
  publication does not fail on a busy catalog: it reports that, and the next update adds its rows;
- a catalog that is missing, broken or of another version is made again, with a message.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from tokmill.tasks.core.database import NoDuckDBError, require_duckdb
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import shared
from tokmill.tasks.store.extra_tables import sync_extra_tables
from tokmill.tasks.store.indexing import Report, num_indexed, sync_files, update_files
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.leases import Lease, leased
from tokmill.tasks.store.provenance import Provenance, utc_now
from tokmill.tasks.store.remote import remote_of
from tokmill.tasks.store.runs import (
    Action,
    Begun,
    Found,
    Run,
    RunArtifact,
    State,
    annotate,
    read_run,
    run_path,
    settle,
    write_run,
)
from tokmill.tasks.store.snapshot import Snapshot, answer, answering, arrow_answer
from tokmill.tasks.store.workspace import sweep

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

Row: TypeAlias = dict[str, Any]
T = TypeVar("T")


MOST_CHARS: Final = 1 << 20
"""The most characters of a query."""
_MOST_OPEN: Final = 200  # the parser's time grows with the square of what is open, and not closed
_NESTING: Final = re.compile(r"""'[^']*'|"[^"]*"|--.*|/\*.*?\*/|[(\[{]|[)\]}]""")


class Answer(NamedTuple):
    """The result of a query: the names of its columns, and its rows, in its order."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]


class Ask(Protocol):
    """Answers queries from a catalog that is open."""

    def __call__(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Return the rows of a query; see `Catalog.query`."""


_LOG = logging.getLogger(__name__)
_REPORTED: set[Path] = set()  # catalogs of which this process has said that it cannot use them
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
    SELECT stage, kind, name, fingerprint, content_digest, seconds, peak_bytes FROM artifacts
    WHERE run_id = $run_id AND started >= $began::TIMESTAMP ORDER BY started, fingerprint
"""


class Catalog:
    """The catalog of one store.

    Args:
        layout: the store.
        wait_seconds: how long `sync` and `rebuild` wait for other processes before that is an error.
        publish_wait_seconds: how long a publication waits before it leaves its rows to the next sync.
        question_wait_seconds: how long a query waits before it updates a copy of its own instead.
        report: receives one-line messages for people: a rebuild, a lag, a file that cannot be read.
    """

    def __init__(
        self,
        layout: Layout,
        wait_seconds: float = 30.0,
        publish_wait_seconds: float = 2.0,
        question_wait_seconds: float = 0.2,
        report: Report = _LOG.warning,
    ) -> None:
        self._layout = layout
        self._publish_wait = publish_wait_seconds
        self._say = report
        self._snapshot = Snapshot(
            layout,
            wait_seconds=wait_seconds,
            question_wait_seconds=question_wait_seconds,
            report=report,
        )

    @property
    def path(self) -> Path:
        """The DuckDB file."""
        return self._layout.catalog

    @property
    def lock_path(self) -> Path:
        """The file whose lock a process holds while it replaces the snapshot."""
        return self._layout.catalog_lock

    def sync(self) -> None:
        """Add the rows of new and changed files, and drop those of files that no longer exist.

        Raises:
            StoreError: another process holds the catalog for too long.
        """
        if self._layout.root.is_dir():  # a query must not create a store
            self._refresh()
            self._settle()
            self._snapshot.sync()

    def rebuild(self) -> None:
        """Make the catalog again from the store's files.

        Raises:
            StoreError: another process holds the catalog for too long.
        """
        self._refresh()
        self._snapshot.rebuild()

    def query(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Return the rows of an SQL query over everything in the store, one dict per row.

        Raises:
            StoreError: DuckDB rejects the query, or runs out of space.
        """
        return self._answered(lambda connection: answer(connection, sql, parameters))

    def asked(self, work: Callable[[Ask], T]) -> T:
        """Do work that has several queries of the store as it is now, for which the catalog is opened once.

        Args:
            work: called with what answers as `query` does; again, if the catalog had to be made anew.

        Raises:
            StoreError: as `query`.
        """

        def worked(connection: "DuckDBPyConnection") -> T:
            def ask(sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
                return answer(connection, sql, parameters)

            return work(ask)

        return self._answered(worked)

    def query_snapshot(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """As `query`, without what is new since somebody last updated the catalog: a run does at its start.

        Raises:
            StoreError: as `query`.
        """
        try:
            return self._snapshot.as_written(lambda connection: answer(connection, sql, parameters))
        except StoreError:  # there is none, or it must be made again
            return self.query(sql, parameters)

    def table(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> "pa.Table":
        """Return the rows of an SQL query as an Arrow table, whose columns have the query's types.

        Raises:
            StoreError: as `query`.
        """
        return self._answered(lambda connection: arrow_answer(connection, sql, parameters))

    def ask_table(self, sql: str) -> "pa.Table":
        """Answer a user's query as `ask`, as an Arrow table.

        Raises:
            StoreError: as `ask`.
        """
        check_question(sql)
        return self.table(sql)

    def ask(self, sql: str) -> Answer:
        """Answer a user's query, which may be any that only reads.

        Raises:
            StoreError: it is not one SELECT statement, DuckDB rejects it, or runs out of space.
        """
        check_question(sql)
        return self._answered(lambda connection: _answer_to_user(connection, sql))

    def versions(
        self, kind: str | None = None, name: str | None = None, *, every: bool = True, most: int | None = None
    ) -> list[Row]:
        """Return one row per version (kind, name, label, …, aliases), sorted by kind, name and number.

        Args:
            kind: only versions of this kind.
            name: only versions of this name.
            every: every version; else only the latest of each name, and shards only if their kind is given.
            most: only so many, those that were made last; all if not given.
        """
        given = {"kind": kind, "name": name, "every": every}
        if most is None:
            return self.query(_SORTED, given)
        return self.query(_MADE_LAST, given | {"most": most})

    def register(self, *paths: Path, report: Report | None = None) -> None:
        """Update the rows of files just written or removed; a busy catalog leaves that to later."""
        self._quietly(lambda connection: self._update(connection, paths), report)

    def register_publication(self, *paths: Path, report: Report | None = None) -> None:
        """As `register`, but left to the next sync if the catalog was written a moment ago.

        Writing the catalog takes longer than publishing a small artifact, and ever longer as it grows,
        while shards are published by the hundred. A query adds the rows that are still missing.
        """
        if not self._snapshot.was_just_written():
            self.register(*paths, report=report)

    def add_run(
        self,
        run_id: str,
        *,
        profile: str = "",
        begun: Begun | None = None,
    ) -> Run:
        """Record that a run has begun; an earlier attempt of the same run is kept with it.

        Args:
            run_id: its id.
            profile: the profile's name, where nothing else is known.
            begun: all that is known of it.

        Raises:
            StoreError: the id cannot be a file's name.
        """
        path = run_path(self._layout.runs, run_id)
        shared.bring(path, sure=True)
        begun = begun or Begun(profile=profile, provenance=Provenance.collect(run_id=run_id))
        known = {name: getattr(begun, name) for name in Begun.model_fields}
        earlier = _ended(read_run(path)).as_earlier() if path.exists() else []
        if earlier:
            again = "resume" if earlier[-1].state == "suspended" else "retry"
            known["started_by"] = known["started_by"].model_copy(update={"how": again})
        run = Run(run_id=run_id, started=utc_now(), earlier=earlier, **known)
        self._save(run)
        return run

    def finish_run(
        self,
        run_id: str,
        *,
        state: State,
        artifacts: Sequence[RunArtifact] = (),
        message: str = "",
        found: Found | None = None,
    ) -> Run:
        """Record how a run ended, and what it has: the artifacts that it asked for, in order, and the rest.

        Raises:
            StoreError: there is no such run.
        """
        finished = self._at_end(run_id, state, message, found or Found(artifacts))
        self._save(finished)
        self._quietly(self._snapshot.take_in, None)
        return finished

    def note_end(self, run_id: str, *, state: State, message: str, found: Found = Found()) -> None:  # noqa: B008 - frozen
        """Record how a run ended, but only in its file, for lack of time; the next query adds the rows.

        Raises:
            StoreError: there is no such run, or it cannot be written.
        """
        write_run(self._layout, self._at_end(run_id, state, message, found))

    def _at_end(self, run_id: str, state: State, message: str, found: Found) -> Run:
        run = read_run(run_path(self._layout.runs, run_id))
        end = {"state": state, "message": message, "ended": utc_now(), "metrics": dict(found.metrics)}
        had = {"artifacts": list(found.artifacts), "inputs": list(found.inputs)}
        return run.model_copy(update=end | had)

    def _save(self, run: Run) -> None:
        self.register(write_run(self._layout, run))

    def settle(self) -> list[Run]:
        """Record the end of runs whose process has died; return those that had no end yet.

        What such a run had made by then is known from the records of its artifacts.

        Raises:
            StoreError: it cannot be written.
        """
        settled = settle(self._layout)
        try:
            return [self._with_what_it_made(run) for run in settled]
        except NoDuckDBError:
            return settled

    def _with_what_it_made(self, run: Run) -> Run:
        made = [
            RunArtifact(
                task=row["stage"],
                ref=ArtifactRef(**{name: row[name] for name in ArtifactRef.model_fields}),
                how="made",
                seconds=row["seconds"],
                peak_bytes=row["peak_bytes"],
            )
            for row in self.query(_MADE_BY, {"run_id": run.run_id, "began": run.started})
        ]
        if made and not run.artifacts:
            run = run.model_copy(update={"artifacts": made})
            write_run(self._layout, run)
        return run

    def annotate(self, run_id: str, action: Action, text: str) -> None:
        """Add a tag or a note to a run, or take a tag away; see `tasks.store.runs`.

        Raises:
            StoreError: as `annotate` there.
        """
        self.register(annotate(self._layout, run_id, action, text))

    def alive(self, run_id: str, profile: str = "") -> AbstractContextManager[Lease]:
        """Mark this process as executing a run, for the length of the block, and hold what the run needs.

        Raises:
            StoreError: the file cannot be written.
        """
        return leased(self._layout, run_id, names=profile)

    def _quietly(self, work: Callable[["DuckDBPyConnection"], None], report: Report | None) -> None:
        """Do `work`, or report why the catalog lags; the next sync adds the rows."""
        try:
            self._snapshot.replace(self._publish_wait, work)
        except StoreError as error:
            lasting = isinstance(error, NoDuckDBError)
            if lasting and self.path in _REPORTED:
                return
            _REPORTED.update([self.path] if lasting else [])
            say = report or self._say
            say(f"{error} (published artifacts are safe; the next query adds them to the catalog)")

    def _answered(self, ask: Callable[["DuckDBPyConnection"], T]) -> T:
        """Query the catalog as it is now; see `Snapshot.answered`."""
        self._refresh()
        self._settle()
        return self._snapshot.answered(ask)

    def _refresh(self) -> None:
        if remote := remote_of(self._layout.root):
            remote.refresh()

    def _settle(self) -> None:
        """Settle runs, and sweep, before a query; without write permission a later process does it."""
        try:
            sweep(self._layout)
            self.settle()
        except StoreError as error:
            _LOG.info("%s", error)

    def _update(self, connection: "DuckDBPyConnection", paths: Sequence[Path]) -> None:
        if num_indexed(connection) == 0:
            sync_files(connection, self._layout, self._say)
        update_files(connection, self._layout, paths, self._say)
        sync_extra_tables(connection, self._layout, self._say)


def _ended(run: Run) -> Run:
    """Return a run that begins again with an end, if it had none."""
    if run.state != "running":
        return run
    return run.model_copy(update={"state": "crashed", "message": "it was begun again before it had ended"})


def _answer_to_user(connection: "DuckDBPyConnection", sql: str) -> Answer:
    """Answer a query that was checked (`check_question`)."""
    with answering(connection):
        found = connection.execute(sql)
        return Answer([column[0] for column in found.description or ()], found.fetchall())


def check_question(sql: str) -> None:
    """Refuse SQL that is not one statement that reads, or is long or deeply nested."""
    if len(sql) > MOST_CHARS or _depth(sql) > _MOST_OPEN:
        raise StoreError(
            f"sql: a query has at most {MOST_CHARS:,} characters, and brackets {_MOST_OPEN} deep; shorten it"
        )
    require_duckdb()
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise StoreError(f"sql: {error}") from error
    if len(statements) != 1:
        raise StoreError(f"sql: {len(statements)} statements were given; give one SELECT")
    kind = statements[0].type.name
    if kind != "SELECT":
        raise StoreError(
            f"sql: {kind} is refused, since the catalog is made from the records and only read; use SELECT, "
            "FROM, DESCRIBE, SUMMARIZE or SHOW TABLES"
        )


def _depth(sql: str) -> int:
    """Return how many brackets are open at once, strings and comments left out."""
    steps = ((found in "([{") - (found in ")]}") for found in _NESTING.findall(sql))
    return max(accumulate(steps), default=0)
