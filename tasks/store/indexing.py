"""Updates the catalog's rows from files that are new, changed or deleted, found by times and sizes.

A part of a store (a kind's artifacts, its labels, runs, …) is listed only if its folder has another time than
before; a time of the last moments before a look is not trusted. Labels lie one folder deeper: whoever gives
one out touches its kind first, unless an artifact is published next (or the sweep after a kill does it).
"""

import errno
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import (
    ALIASES,
    LABELS,
    RECORD_FILE,
    REMOVED,
    Layout,
    is_prefix,
    part_of,
    printable,
)
from tokmill.tasks.store.names import is_kind
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.remote import pull
from tokmill.tasks.store.rows import Rows, rows_of
from tokmill.tasks.store.tables import ALL_TABLES, KEYS, TABLES, TREES, VIEWS, Report, lacks_room

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Stamps: TypeAlias = dict[str, tuple[int, int]]
"""Modification time in nanoseconds and size in bytes of each file, by posix path below the store."""

_UNSURE: Final = -1  # the time of a part that has to be looked over every time
_TICK_NS: Final = 2_000_000_000  # the coarsest clock of a file system that is in use
_BATCH: Final = 4096
_FEW_ROWS: Final = 128
_PARTS: Final = f"""
    SELECT part, CASE WHEN part IN (SELECT part FROM catalog_files WHERE problem IS NOT NULL)
                      THEN {_UNSURE} ELSE time END
    FROM catalog_parts
"""  # noqa: S608 - a constant
_FOLDER: Final = "catalog"
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TREES: Final = frozenset(TREES.values())
_OWN: Final = ALL_TABLES.keys() | VIEWS.keys()
_DIFFERING: Final = """
    SELECT table_name, list((kind, fingerprint, digest) ORDER BY kind, fingerprint) FILTER (now)
    FROM (SELECT path[9:-9] AS table_name, kind, fingerprint, digest, true AS now
          FROM files JOIN artifacts USING (fingerprint)
          WHERE starts_with(path, 'catalog/') AND ends_with(path, '.parquet')
          UNION ALL SELECT table_name, NULL, fingerprint, digest, false FROM catalog_extra)
    GROUP BY table_name
    HAVING list_sort(list((fingerprint, digest)) FILTER (now))
        IS DISTINCT FROM list_sort(list((fingerprint, digest)) FILTER (NOT now))
    ORDER BY table_name
"""


class Changes(NamedTuple):
    """What differs between a catalog and the store's files."""

    files: Stamps  # of files that are new or have changed
    stale: Sequence[str]  # paths of files whose rows in the catalog no longer count
    times: Mapping[str, int]  # of the store's parts
    looked: float  # when that was so, by the monotonic clock

    @property
    def any(self) -> bool:
        """Whether there is a difference."""
        return bool(self.files or self.stale)


def find_changes(connection: "DuckDBPyConnection", layout: Layout) -> Changes:
    """Return what differs between the catalog and the store's files; nothing but new records is read."""
    looked, times = time.monotonic(), _part_times(layout)
    before = dict(connection.execute(_PARTS).fetchall())
    parts = {part for part, moment in times.items() if moment == _UNSURE or before.get(part) != moment}
    parts |= before.keys() - times.keys()
    seen: Stamps = {}
    for part in sorted(parts):
        paths = list(paths_in(layout, part))
        stamps = _stamps(layout, paths)
        if is_kind(part) and len(stamps) < len(paths):  # a folder that is being copied gets its record later
            times[part] = _UNSURE
        seen |= stamps
    known = _known(connection, "part", sorted(parts))
    # an artifact that was lost and made again has its record at the same path, and maybe a new label
    new = [path for path, stamp in seen.items() if known.get(path) != stamp]
    seen |= _labels_of(layout, [path for path in new if path.endswith(f"/{RECORD_FILE}")])
    known |= _known(connection, "path", [path for path in seen if path not in known])
    changed = {path: stamp for path, stamp in seen.items() if known.get(path) != stamp}
    return Changes(changed, [path for path in known if path not in seen or path in changed], times, looked)


def _part_times(layout: Layout) -> dict[str, int]:
    folders = [*layout.kinds(), layout.runs.name, layout.annotations.name]
    for tree in (LABELS, REMOVED):
        folders += [f"{tree}/{entry.name}" for entry in disk.entries(layout.root / tree) if entry.is_dir()]
    times = {ALIASES: _UNSURE}
    for part in folders:
        with suppress(OSError):
            state = disk.state(layout.root / part)
            times |= {part: state.mtime_ns} if state.kind == "folder" else {}
    return times


def paths_in(layout: Layout, part: str) -> Iterator[str]:
    """Yield the paths of the files of a part, as far as the store writes such names."""
    tree = part.partition("/")[0]
    if tree in (LABELS, ALIASES):
        yield from _named(layout.root / part, part)
        return
    for entry in disk.entries(layout.root / part):
        if is_kind(tree):
            if is_prefix(entry.name):
                yield f"{part}/{entry.name}/{RECORD_FILE}"
        elif entry.name.endswith(".json") and entry.name[0] != ".":
            yield f"{part}/{entry.name}"


def _named(folder: Path | str, relative: str) -> Iterator[str]:
    for entry in disk.entries(folder):
        if entry.name.startswith("@"):
            yield f"{relative}/{entry.name}"
        elif entry.is_dir():
            yield from _named(entry.path, f"{relative}/{entry.name}")


def _stamps(layout: Layout, paths: Iterable[str]) -> Stamps:
    """Stamp files before they are read, so that a later change is noticed; the store's names are ASCII."""
    root, stamps = str(layout.root), {}
    for path in filter(str.isascii, paths):
        with suppress(OSError):  # it does not exist, or may not be read
            state = disk.state(f"{root}/{path}")  # a file that became a link counts as another
            stamps[path] = (state.mtime_ns, state.num_bytes)
    return stamps


def _known(connection: "DuckDBPyConnection", column: str, values: Sequence[str]) -> Stamps:
    if not values:
        return {}
    wanted = f"SELECT path, mtime_ns, size FROM catalog_files WHERE {column} IN (SELECT unnest(?::VARCHAR[]))"  # noqa: S608
    return {path: (moment, size) for path, moment, size in connection.execute(wanted, [values]).fetchall()}


def _labels_of(layout: Layout, records: Sequence[str]) -> Stamps:
    """Return the stamps of the labels of artifacts that are new; those without any get that of the record."""
    names, known = Names(layout), dict[tuple[str, str], set[str]]()
    for path in records:
        with suppress(StoreError, MachineError):  # reported when its rows are read
            record = read_record((layout.root / path).parent)
            name = record.kind, record.name
            if name not in known:
                known[name] = set(names.labels(*name).values())
            if record.fingerprint not in known[name]:
                names.adopt(*name, record.label, record.fingerprint)
    folders = (f"{LABELS}/{kind}/{name}" for kind, name in known)
    files = ((folder, entry.name) for folder in folders for entry in disk.entries(layout.root / folder))
    return _stamps(layout, (f"{folder}/{name}" for folder, name in files if name.startswith("@")))


def apply_changes(connection: "DuckDBPyConnection", layout: Layout, changes: Changes) -> None:
    """Replace the rows of what differs, in one transaction."""
    if not changes.any:
        return
    connection.execute("BEGIN")
    _delete(connection, changes.stale)
    remaining = iter(sorted(changes.files))
    while batch := list(islice(remaining, _BATCH)):  # so that memory does not grow with the store
        for name, rows in _read_files(layout, {path: changes.files[path] for path in batch}).items():
            insert(connection, name, rows)
    since_ns = int((time.monotonic() - changes.looked) * 1e9) + _TICK_NS
    sure_ns = shared.local_now_ns(layout.root) - since_ns  # by the file system's clock
    times = {part: moment if moment < sure_ns else _UNSURE for part, moment in changes.times.items()}
    connection.execute("DELETE FROM catalog_parts")
    insert(connection, "catalog_parts", [{"part": part, "time": times[part]} for part in sorted(times)])
    connection.execute("COMMIT")


def _read_files(layout: Layout, stamps: Stamps) -> Rows:
    rows: Rows = {name: [] for name in (*TABLES, "catalog_files")}
    for path, (moment, size) in stamps.items():
        row = {"path": path, "part": part_of(path), "mtime_ns": moment, "size": size}
        try:
            row["key"], of_file = rows_of(layout, layout.root / path)
        except (StoreError, MachineError) as error:
            row["problem"], of_file = printable(str(error)), {}
            cause = error.__cause__
            if isinstance(error, MachineError) or (
                isinstance(cause, OSError) and cause.errno != errno.EINVAL
            ):
                row["size"] = -1  # this says nothing about the file: it is read again
        rows["catalog_files"].append(row)
        for name, more in of_file.items():
            rows[name].extend(more)
    return rows


def _delete(connection: "DuckDBPyConnection", paths: Sequence[str]) -> None:
    """Delete the rows of these files; keys of different tables never coincide."""
    # The names in these statements are constants of the package; what varies is a parameter.
    named = "FROM catalog_files WHERE path IN (SELECT unnest(?::VARCHAR[]))"
    files = connection.execute(f"SELECT key, split_part(path, '/', 1) {named}", [paths]).fetchall()
    for name, column in KEYS.items():
        stale = [key for key, tree in files if key and TREES[name] == (tree if tree in _TREES else "")]
        if stale:
            connection.execute(f"DELETE FROM {name} WHERE {column} IN (SELECT unnest(?::VARCHAR[]))", [stale])  # noqa: S608
    if files:
        connection.execute(f"DELETE {named}", [paths])


def insert(connection: "DuckDBPyConnection", table: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows, given as column → value, into a table; what has no column is left out."""
    columns = ALL_TABLES[table]
    if 0 < len(rows) <= _FEW_ROWS:
        lists = ", ".join(f"unnest(?::{sql_type}[])" for sql_type in columns.values())
        values = [[row.get(column) for row in rows] for column in columns]
        connection.execute(f"INSERT INTO {table} SELECT {lists}", values)
    elif rows:  # as one Arrow table, which costs a few rows more and many less
        import pyarrow as pa

        types = {"VARCHAR": "string", "TIMESTAMP": "string", "DOUBLE": "float64", "BOOLEAN": "bool"}
        types |= {"INTEGER": "int32", "BIGINT": "int64", "UBIGINT": "uint64"}
        schema = pa.schema([(column, types[sql_type]) for column, sql_type in columns.items()])
        connection.register("new_rows", pa.Table.from_pylist(rows, schema=schema))
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")  # noqa: S608
        connection.unregister("new_rows")


class _Part(NamedTuple):
    kind: str
    fingerprint: str
    digest: str


def check_extra_tables(out: Path) -> None:
    """Refuse tables that the catalog cannot hold."""
    for entry in sorted(disk.entries(out / _FOLDER), key=lambda entry: entry.name):
        path = Path(entry.path)
        if path.suffix != ".parquet" or not _is_extra(path.stem):
            raise StoreError(
                f"{_FOLDER}/{path.name}: the folder holds <table>.parquet only, where <table> matches "
                f"{_TABLE.pattern} and is none of {sorted(_OWN)}"
            )
        import pyarrow as pa  # which is slow, and few artifacts bring tables
        from pyarrow import parquet

        try:
            names = parquet.read_schema(path).names
        except (pa.ArrowInvalid, OSError) as error:
            raise StoreError(f"{_FOLDER}/{path.name} cannot be read as Parquet: {error}") from error
        if "fingerprint" in names:
            raise StoreError(
                f"{_FOLDER}/{path.name} has a column 'fingerprint', which the catalog adds; rename it"
            )


def _is_extra(table: str) -> bool:
    """Whether a table may be called so; what a record lists need not have passed the check above."""
    return _TABLE.fullmatch(table) is not None and table not in _OWN


def stale_tables(connection: "DuckDBPyConnection") -> dict[str, list[_Part]]:
    """Return the tables that need an update, each with the artifacts that bring it."""
    tables = connection.execute(_DIFFERING).fetchall()
    return {table: [_Part(*part) for part in parts or ()] for table, parts in tables if _is_extra(table)}


def sync_extra_tables(connection: "DuckDBPyConnection", layout: Layout, say: Report) -> None:
    """Make every extra table that is not of the artifacts in the catalog again."""
    import duckdb

    stale, readable = stale_tables(connection), dict[str, dict[_Part, str]]()
    transactions = [([*stale], False)] if stale else []
    for tables, looked in transactions:  # one, and if that fails, one for each table, without what is broken
        for name in tables:
            rows = {one: _rows(connection, layout, one, name, say, look=looked) for one in stale[name]}
            readable[name] = {one: sql for one, sql in rows.items() if sql}
        extra = [{"table_name": table, **part._asdict()} for table in tables for part in readable[table]]
        connection.execute("BEGIN")
        try:
            for table in tables:
                connection.execute(f"DROP TABLE IF EXISTS {table}")
                if union := " UNION ALL BY NAME ".join(readable[table].values()):
                    connection.execute(f"CREATE TABLE {table} AS {union}")
            connection.execute("DELETE FROM catalog_extra WHERE table_name IN (SELECT unnest(?))", [tables])
            insert(connection, "catalog_extra", extra)
            connection.execute("COMMIT")
        except duckdb.Error as error:  # a page that is damaged, which must not stop every query
            with suppress(duckdb.TransactionException):  # a commit that failed has ended it
                connection.execute("ROLLBACK")
            if lacks_room(error):
                raise
            transactions += [([table], True) for table in tables if not looked]
            if looked:
                say(f"the catalog leaves the table {tables[0]} as it was: {error}; run `verify`")


def _rows(
    connection: "DuckDBPyConnection", layout: Layout, part: _Part, table: str, say: Report, *, look: bool
) -> str | None:
    """Return the rows of a part as SQL; None if they cannot be read, as far as that is looked at."""
    import duckdb

    path = layout.artifact(part.kind, part.fingerprint) / _FOLDER / f"{table}.parquet"
    quoted = str(path).replace("'", "''")
    select = f"SELECT '{part.fingerprint}' AS fingerprint, * FROM read_parquet('{quoted}')"  # noqa: S608
    try:
        pull(path.parents[1], [f"{_FOLDER}/{path.name}"])
        with disk.opened(path):  # DuckDB would wait for a FIFO
            if look:
                connection.execute(f"DESCRIBE {select}")
    except (duckdb.Error, OSError) as error:
        say(f"the catalog leaves out {path}: {error}; run `verify`")
        return None
    return select
