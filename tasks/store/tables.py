"""The catalog's tables, and the rows of one file of the store.

Every row follows from a single file of the store: a record, a label, an alias, a tombstone, a run or a remark
on one. So a file that appears, changes or goes affects its own rows only, and the catalog can be made again
from the files at any time. The tables of runs are in `tasks.store.run_tables`, those of an artifact's
`catalog/*.parquet` in `tasks.store.extra_tables`.

Lineage goes from content to content, over a million inputs. So a content also has a number (`content_id`),
by which DuckDB finds what may be on the way ten times as fast as by 64 digits.

Whoever adds or changes a table or column, or a view (`tasks.store.lineage_views`), or what rows mean, adds
one to `VERSION`: a catalog of another version is made again from the store's files.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Account
from tokmill.tasks.store.labels import read_name, version_number
from tokmill.tasks.store.layout import ALIASES, LABELS, Layout
from tokmill.tasks.store.lineage_views import VIEWS, make_views
from tokmill.tasks.store.names import check_alias, check_kind, check_label, check_name
from tokmill.tasks.store.record import InputEntry, Record, read_record
from tokmill.tasks.store.run_tables import (
    RUN_KEYS,
    RUN_TABLES,
    RUN_TREES,
    as_json,
    remark_row,
    run_rows,
    scalar_columns,
)
from tokmill.tasks.store.runs import read_remark, read_run
from tokmill.tasks.store.tombstones import Tombstone, read_tombstone, tombstone_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[str, list[Row]]

_INPUTS: Final = {
    "fingerprint": "VARCHAR",
    "role": "VARCHAR",
    "position": "BIGINT",
    "digest": "VARCHAR",
    "input_kind": "VARCHAR",
    "input_name": "VARCHAR",
    "input_fingerprint": "VARCHAR",
    "origin": "VARCHAR",
    "file_digest": "VARCHAR",
    "input_content_id": "UBIGINT",
    "content_id": "UBIGINT",
}

TABLES: Final[dict[str, dict[str, str]]] = {
    "artifacts": {
        "fingerprint": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "label": "VARCHAR",
        "content_digest": "VARCHAR",
        "record_digest": "VARCHAR",
        "stage": "VARCHAR",
        "stage_version": "INTEGER",
        "num_files": "BIGINT",
        "num_bytes": "BIGINT",
        "started": "TIMESTAMP",
        "ended": "TIMESTAMP",
        "seconds": "DOUBLE",
        "payload": "VARCHAR",
        "params": "VARCHAR",
        "git_commit": "VARCHAR",
        "git_dirty": "BOOLEAN",
        "user_name": "VARCHAR",
        "command": "VARCHAR",
        "run_id": "VARCHAR",
        "flow_run_id": "VARCHAR",
        "deployment_id": "VARCHAR",
        "format_version": "INTEGER",
        "peak_bytes": "BIGINT",
        "content_id": "UBIGINT",
    },
    "inputs": _INPUTS,
    "files": {"fingerprint": "VARCHAR", "path": "VARCHAR", "size_bytes": "BIGINT", "digest": "VARCHAR"},
    "metrics": {"fingerprint": "VARCHAR", "name": "VARCHAR", "value": "DOUBLE", "text": "VARCHAR"},
    "accounts": {
        "fingerprint": "VARCHAR",
        "source": "VARCHAR",
        "unit": "VARCHAR",
        "side": "VARCHAR",
        "name": "VARCHAR",
        "amount": "BIGINT",
    },
    "labels": {
        "key": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "label": "VARCHAR",
        "number": "BIGINT",
        "fingerprint": "VARCHAR",
    },
    "aliases": {
        "key": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "alias": "VARCHAR",
        "fingerprint": "VARCHAR",
    },
    "removed": {
        "key": "VARCHAR",
        "fingerprint": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "label": "VARCHAR",
        "content_digest": "VARCHAR",
        "num_files": "BIGINT",
        "num_bytes": "BIGINT",
        "removed": "TIMESTAMP",
        "user_name": "VARCHAR",
        "command": "VARCHAR",
        "reason": "VARCHAR",
        "stage": "VARCHAR",
        "content_id": "UBIGINT",
    },
    "removed_inputs": {"key": "VARCHAR", **_INPUTS},
    **RUN_TABLES,
}

KEYS: Final[dict[str, str]] = {
    "artifacts": "fingerprint",
    "inputs": "fingerprint",
    "files": "fingerprint",
    "metrics": "fingerprint",
    "accounts": "fingerprint",
    "labels": "key",
    "aliases": "key",
    "removed": "key",
    "removed_inputs": "key",
    **RUN_KEYS,
}
"""The column that identifies a file's rows: fingerprint, run id, `kind/name@label`, a tombstone's path, or a
remark's name."""

TREES: Final[dict[str, str]] = {
    "artifacts": "",
    "inputs": "",
    "files": "",
    "metrics": "",
    "accounts": "",
    "labels": LABELS,
    "aliases": ALIASES,
    "removed": "removed",
    "removed_inputs": "removed",
    **RUN_TREES,
}
"""The folder below the store whose files a table's rows come from; '' for the records, in many folders."""


VERSION: Final = 10

_OWN: Final[dict[str, dict[str, str]]] = {
    "catalog_version": {"version": "INTEGER"},
    "catalog_files": {"path": "VARCHAR", "mtime_ns": "BIGINT", "size": "BIGINT", "key": "VARCHAR"},
    "catalog_parts": {"part": "VARCHAR", "time": "BIGINT"},
    "catalog_extra": {"table_name": "VARCHAR", "fingerprint": "VARCHAR", "digest": "VARCHAR"},
}
ALL_TABLES: Final = {**TABLES, **_OWN}


class BrokenCatalogError(StoreError):
    """The catalog's file cannot be used and has to be made again."""


def check_version(connection: "DuckDBPyConnection", *, empty: bool = False) -> bool:
    """Return whether the database holds the catalog's tables; it may lack them only if `empty`."""
    import duckdb  # imported here because it is slow and not every command needs it

    try:
        versions = connection.execute("SELECT version FROM catalog_version").fetchall()
    except duckdb.CatalogException:  # in this order, since listing the tables takes ten times as long
        found = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
        if empty and not found:
            return False
        raise BrokenCatalogError(f"it holds other tables: {found}") from None
    if versions != [(VERSION,)]:
        said = ", ".join(str(version) for (version,) in versions)
        raise BrokenCatalogError(f"its version is {said} and not {VERSION}")
    return True


def make_tables(connection: "DuckDBPyConnection") -> None:
    """Make the tables in an empty database, and the views of lineage."""
    connection.execute("BEGIN")
    for name, columns in ALL_TABLES.items():
        listed = ", ".join(f"{column} {sql_type}" for column, sql_type in columns.items())
        connection.execute(f"CREATE TABLE {name} ({listed})")
    make_views(connection)
    connection.execute("INSERT INTO catalog_version VALUES (?)", [VERSION])
    connection.execute("COMMIT")


def check_tables(connection: "DuckDBPyConnection") -> None:
    """Raise BrokenCatalogError unless every table of the catalog has its columns, and each view is ours."""
    connection.execute("ROLLBACK")
    found = connection.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE NOT internal AND schema_name = 'main'"
    ).fetchall()
    wanted = {(table, *column) for table, columns in ALL_TABLES.items() for column in columns.items()}
    if lacking := sorted(wanted.difference(found)):
        raise BrokenCatalogError(f"it lacks {lacking[0]}")
    views = connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE NOT internal AND database_name = 'snapshot'"
    ).fetchall()
    if foreign := sorted({name for (name,) in views} - VIEWS.keys()):
        raise BrokenCatalogError(f"it has the view {foreign[0]}")


def rows_of(layout: Layout, path: Path) -> tuple[str, Rows]:
    """Return the key and the rows of one file."""
    relative = path.relative_to(layout.root)
    if relative.parts[0] in (LABELS, ALIASES):
        return _name_rows(relative, path)
    if relative.parts[0] == layout.runs.name:
        run = read_run(path)
        if run.run_id != path.stem:
            raise StoreError(f"it is the run {run.run_id}, which does not belong there")
        return run.run_id, run_rows(run)
    if relative.parts[0] == layout.annotations.name:
        return path.name, {"run_annotations": [remark_row(path.name, read_remark(path))]}
    if relative.parts[0] == layout.removed.name:
        left = read_tombstone(path)
        if tombstone_path(layout, left.record.kind, left.record.fingerprint) != path:
            raise StoreError(f"it is the tombstone of {left.record.reference}, which does not belong there")
        return relative.as_posix(), _removed_rows(relative.as_posix(), left)
    record = read_record(path.parent)
    if layout.artifact(record.kind, record.fingerprint) != path.parent:
        raise StoreError(f"it is the record of {record.reference}, which does not belong there")
    return record.fingerprint, artifact_rows(record)


def artifact_rows(record: Record) -> Rows:
    """Return the rows of one record."""
    mine = {"fingerprint": record.fingerprint}
    return {
        "artifacts": [_artifact_row(record)],
        "inputs": _input_rows(record),
        "files": [{**mine, **entry.model_dump()} for entry in record.files],
        "metrics": [
            {**mine, "name": name, **scalar_columns(value)} for name, value in record.metrics.items()
        ],
        "accounts": [{**mine, **row} for account in record.accounts for row in _account_rows(account)],
    }


def _artifact_row(record: Record) -> Row:
    return {
        "fingerprint": record.fingerprint,
        "kind": record.kind,
        "name": record.name,
        "label": record.label,
        "content_digest": record.content_digest,
        "record_digest": record.record_digest,
        "stage": record.payload.get("stage"),
        "stage_version": record.payload.get("version"),
        "num_files": len(record.files),
        "num_bytes": record.num_bytes,
        "started": record.timings.started,
        "ended": record.timings.ended,
        "seconds": record.timings.seconds,
        "payload": as_json(record.payload),
        "params": as_json(record.params),
        "git_commit": record.provenance.git_commit,
        "git_dirty": record.provenance.git_dirty,
        "user_name": record.provenance.user,
        "command": record.provenance.command,
        "run_id": record.provenance.run_id or record.provenance.flow_run_id,
        "flow_run_id": record.provenance.flow_run_id,
        "deployment_id": record.provenance.deployment_id,
        "format_version": record.format_version,
        "peak_bytes": record.timings.peak_bytes,
        "content_id": content_id(record.kind, record.content_digest),
    }


def content_id(kind: str | None, digest: str) -> int:
    """Return the number of a content of a kind, or of one from outside of the store (None): 64 bits.

    Among a million contents, two have the same one with a chance of three in a hundred million. So a number
    finds rows, and decides nothing: see `tasks.store.lineage_views.near_by_number`.
    """
    hashed = hashlib.blake2b(f"{kind or ''}/{digest}".encode(), digest_size=8)
    return int.from_bytes(hashed.digest(), "little")


def _input_rows(record: Record) -> list[Row]:
    mine = {
        "fingerprint": record.fingerprint,
        "content_id": content_id(record.kind, record.content_digest),
    }
    return [
        {
            **mine,
            "role": entry.role,
            "position": entry.position,
            "digest": entry.digest,
            "input_kind": entry.kind,
            "input_name": entry.name,
            "input_fingerprint": entry.fingerprint,
            "origin": entry.origin,
            "file_digest": _file_digest(entry),
            "input_content_id": content_id(entry.kind, entry.digest),
        }
        for entry in record.inputs
    ]


def _file_digest(entry: InputEntry) -> str | None:
    """Return the digest of the bytes of a file from outside of the store, if it is one."""
    found = entry.about.get("digest") if isinstance(entry.about, dict) else None
    return found if isinstance(found, str) and entry.origin is not None else None


def _removed_rows(key: str, left: Tombstone) -> Rows:
    inputs = [{"key": key, **row} for row in _input_rows(left.record)]
    return {"removed": [_removed_row(key, left)], "removed_inputs": inputs}


def _removed_row(key: str, left: Tombstone) -> Row:
    record = left.record
    return {
        "key": key,
        "fingerprint": record.fingerprint,
        "kind": record.kind,
        "name": record.name,
        "label": record.label,
        "content_digest": record.content_digest,
        "num_files": len(record.files),
        "num_bytes": record.num_bytes,
        "removed": left.removed,
        "user_name": left.by,
        "command": left.command,
        "reason": left.reason,
        "stage": record.payload.get("stage"),
        "content_id": content_id(record.kind, record.content_digest),
    }


def _account_rows(account: Account) -> list[Row]:
    amounts = [("in", "in", account.num_in)]
    amounts += [("added", name, amount) for name, amount in account.added.items()]
    amounts += [("became", name, amount) for name, amount in account.became.items()]
    own = {"source": account.source, "unit": account.unit}
    return [{**own, "side": side, "name": name, "amount": amount} for side, name, amount in amounts]


def _name_rows(relative: Path, path: Path) -> tuple[str, Rows]:
    tree, kind, name = relative.parts[0], relative.parts[1], "/".join(relative.parts[2:-1])
    check_kind(kind)
    check_name(name)
    label, fingerprint = read_name(path)
    (check_label if tree == LABELS else check_alias)(label)
    if not fingerprint:  # its writer died while writing; the label is never given out again
        return name_key(kind, name, label), {}
    row: Row = {"key": name_key(kind, name, label), "kind": kind, "name": name, "fingerprint": fingerprint}
    row |= {"label": label, "number": version_number(label)} if tree == LABELS else {"alias": label}
    return row["key"], {tree: [row]}


def name_key(kind: str, name: str, label: str) -> str:
    """Return `kind/name@label`."""
    return f"{kind}/{name}@{label}"
