"""The catalog's tables, whose rows follow from one file of the store each, and its views of lineage.

Contents also have numbers (`content_id`), by which DuckDB walks ten times as fast, and which decide nothing
(ADR 31). Whoever changes any of this, or what rows mean, adds one to `VERSION`: catalogs are made again.
"""

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from tokmill.tasks.core.errors import StoreError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Report: TypeAlias = Callable[[str], None]
"""Receives a one-line message for people."""

VERSION: Final = 11
MOST_STEPS: Final = 256


def _columns(listed: str) -> dict[str, str]:
    named = (column.partition(":") for column in listed.split())
    return {name: sql_type or "VARCHAR" for name, _, sql_type in named}


_INPUTS: Final = (
    "fingerprint role position:BIGINT digest input_kind input_name input_fingerprint origin file_digest "
    "input_content_id:UBIGINT content_id:UBIGINT"
)
_OF_RECORDS: Final = {
    "artifacts": (
        "fingerprint kind name label content_digest record_digest stage stage_version:INTEGER "
        "num_files:BIGINT num_bytes:BIGINT started:TIMESTAMP ended:TIMESTAMP seconds:DOUBLE payload params "
        "git_commit git_dirty:BOOLEAN user_name command run_id flow_run_id deployment_id "
        "format_version:INTEGER peak_bytes:BIGINT content_id:UBIGINT"
    ),
    "inputs": _INPUTS,
    "files": "fingerprint path size_bytes:BIGINT digest",
    "metrics": "fingerprint name value:DOUBLE text",
    "accounts": "fingerprint source unit side name amount:BIGINT",
}
_OF_TOMBSTONES: Final = {
    "removed": (
        "key fingerprint kind name label content_digest num_files:BIGINT num_bytes:BIGINT removed:TIMESTAMP "
        "user_name command reason stage content_id:UBIGINT"
    ),
    "removed_inputs": f"key {_INPUTS}",
}
_OF_RUNS: Final = {  # one row per attempt, but of `run_parameters` and `run_tags`
    "runs": (
        "run_id attempt:BIGINT is_latest:BOOLEAN name profile experiment state message started:TIMESTAMP "
        "ended:TIMESTAMP parameters overrides notes started_by user_name command url deployment_id tokmill "
        "git_commit git_dirty:BOOLEAN dirty_digest python packages host num_made:BIGINT num_cached:BIGINT "
        "num_waited:BIGINT peak_bytes:BIGINT"
    ),
    "run_artifacts": (
        "run_id attempt:BIGINT position:BIGINT task kind name fingerprint content_digest how seconds:DOUBLE "
        "peak_bytes:BIGINT"
    ),
    "run_inputs": (
        "run_id attempt:BIGINT position:BIGINT role kind name fingerprint digest num_files:BIGINT "
        "num_bytes:BIGINT origin"
    ),
    "run_metrics": "run_id attempt:BIGINT name value:DOUBLE text",
    "run_parameters": "run_id name value:DOUBLE text",
    "run_tags": "run_id tag moment:TIMESTAMP",
}
_SOURCES: Final = (
    ("", "fingerprint", _OF_RECORDS),  # in the folders of many kinds
    ("labels", "key", {"labels": "key kind name label number:BIGINT fingerprint"}),
    ("aliases", "key", {"aliases": "key kind name alias fingerprint"}),
    ("removed", "key", _OF_TOMBSTONES),
    ("runs", "run_id", _OF_RUNS),
    ("annotations", "key", {"run_annotations": "key run_id moment:TIMESTAMP user_name action text"}),
)
"""The folder below the store whose files rows come from, the column that has a file's key, and the tables."""

TABLES: Final = {name: _columns(listed) for *_, tables in _SOURCES for name, listed in tables.items()}
TREES: Final = {name: tree for tree, _, tables in _SOURCES for name in tables}
KEYS: Final = {name: key for _, key, tables in _SOURCES for name in tables}
ALL_TABLES: Final = TABLES | {
    "catalog_version": _columns("version:INTEGER"),
    "catalog_files": _columns("path part mtime_ns:BIGINT size:BIGINT key problem"),
    "catalog_parts": _columns("part time:BIGINT"),
    "catalog_extra": _columns("table_name fingerprint digest"),
}
VIEWS: Final = {
    "lineage_up": (
        *("fingerprint", "artifact", "depth", "input_fingerprint", "input_kind", "input_name"),
        *("input_label", "digest", "origin", "status"),
    ),
    "lineage_down": (
        *("fingerprint", "artifact", "depth", "user_fingerprint", "user_kind", "user_name"),
        *("user_label", "digest", "status"),
    ),
}
"""The views, with their columns."""

ALL_ARTIFACTS: Final = """
    SELECT fingerprint, kind, name, label, content_digest, content_id, stage, 'published' AS status
    FROM artifacts
    UNION ALL
    SELECT r.fingerprint, r.kind, r.name, r.label, r.content_digest, r.content_id, r.stage, 'removed'
    FROM removed r ANTI JOIN artifacts a ON a.fingerprint = r.fingerprint
"""
"""SQL: the artifacts that are in the store, and those that were removed and not made again."""

_OF_INPUTS: Final = (
    "fingerprint, role, digest, input_kind, input_name, input_fingerprint, origin, input_content_id, "
    "content_id"
)
ALL_INPUTS: Final = f"""
    SELECT {_OF_INPUTS}, 'published' AS status FROM inputs
    UNION ALL
    SELECT {_OF_INPUTS}, 'removed' FROM removed_inputs
"""  # noqa: S608
"""SQL: their inputs; those of an artifact that was made again are there twice."""

OWNERS: Final = """
    SELECT fingerprint, kind, name, content_digest, content_id, 'published' AS status FROM artifacts
    UNION ALL
    SELECT fingerprint, kind, name, content_digest, content_id, 'removed' FROM removed
"""
"""SQL: what has these inputs, by fingerprint and status: the artifacts, and those that were removed."""


def near_by_number(seeds: str) -> str:
    """Return SQL that finds all that may have been made from some contents: `every`, `near` and `edges`.

    Equal contents have equal numbers, and different ones hardly ever. So `near` has the number of every
    content that was made from the seeds, and maybe others. `edges` has the inputs with these numbers, few
    rows, with kind and digest of what was used (`input_kind`, `digest`) and of what was made from it (`kind`,
    `content_digest`): a walk along equal kinds and digests is exact.
    """
    return f"""
    every AS NOT MATERIALIZED ({ALL_INPUTS}),
    near(content) AS (
        {seeds}
        UNION
        SELECT i.content_id FROM near JOIN every i ON i.input_content_id = near.content
    ),
    owners AS MATERIALIZED (SELECT * FROM ({OWNERS}) WHERE content_id IN (FROM near)),
    edges AS MATERIALIZED (
        SELECT i.fingerprint, i.role, i.input_kind, i.digest, o.kind, o.content_digest
        FROM every i JOIN owners o USING (fingerprint, status)
        WHERE i.input_content_id IN (FROM near)
    )
    """  # noqa: S608 - constants


_FROM_UP: Final = f"""
    WITH RECURSIVE every AS NOT MATERIALIZED ({ALL_INPUTS}),
    gone AS NOT MATERIALIZED (
        SELECT r.fingerprint, r.content_digest FROM removed r
        ANTI JOIN artifacts a ON a.fingerprint = r.fingerprint
    ),
    up(key, kind, name, digest, origin, status, depth) AS (
        SELECT fingerprint, kind, name, content_digest, NULL::VARCHAR, status, 0
        FROM ({{root}})
        UNION
        SELECT coalesce(named.fingerprint, equal.fingerprint, i.input_fingerprint), i.input_kind,
               i.input_name, i.digest, i.origin,
               CASE WHEN i.input_kind IS NULL THEN 'external'
                    WHEN coalesce(named.fingerprint, equal.fingerprint) IS NOT NULL THEN 'published'
                    WHEN gone.fingerprint IS NOT NULL THEN 'removed' ELSE 'missing' END,
               up.depth + 1
        FROM up JOIN every i ON i.fingerprint = up.key AND i.status = up.status
        LEFT JOIN artifacts named
            ON named.fingerprint = i.input_fingerprint AND named.content_digest = i.digest
        LEFT JOIN artifacts equal
            ON named.fingerprint IS NULL AND equal.kind = i.input_kind AND equal.content_digest = i.digest
        LEFT JOIN gone ON gone.fingerprint = i.input_fingerprint AND gone.content_digest = i.digest
        WHERE up.depth < {MOST_STEPS}
    )
    SELECT key, kind, name, digest, origin, status, min(depth) AS depth FROM up WHERE depth > 0 GROUP BY ALL
"""  # noqa: S608 - constants
_FROM_DOWN: Final = f"""
    WITH RECURSIVE {near_by_number("SELECT content_id FROM ({root})")},
    down(kind, digest, depth) AS (
        SELECT kind, content_digest, 0 FROM ({{root}})
        UNION
        SELECT e.kind, e.content_digest, down.depth + 1
        FROM down JOIN edges e ON e.input_kind = down.kind AND e.digest = down.digest
        WHERE down.depth < {MOST_STEPS}
    ),
    used(kind, digest, depth) AS (SELECT kind, digest, min(depth) FROM down GROUP BY ALL)
    SELECT e.fingerprint AS key, min(used.depth) + 1 AS depth
    FROM used JOIN edges e ON e.input_kind = used.kind AND e.digest = used.digest GROUP BY e.fingerprint
"""  # noqa: S608
_HEAD: Final = "a.fingerprint, a.kind || '/' || a.name || '@' || a.label AS artifact, walk.depth"
_UP: Final = f"""
    SELECT {_HEAD}, walk.key AS input_fingerprint, walk.kind AS input_kind,
           coalesce(other.name, walk.name) AS input_name, other.label AS input_label, walk.digest,
           walk.origin, walk.status
    FROM ({ALL_ARTIFACTS}) a, {{lateral}} ({{walk}}) walk
    LEFT JOIN ({ALL_ARTIFACTS}) other ON other.fingerprint = walk.key AND walk.status <> 'missing'
    WHERE walk.key IS DISTINCT FROM a.fingerprint
"""  # noqa: S608
_DOWN: Final = f"""
    SELECT {_HEAD}, other.fingerprint AS user_fingerprint, other.kind AS user_kind, other.name AS user_name,
           other.label AS user_label, other.content_digest AS digest, other.status
    FROM ({ALL_ARTIFACTS}) a, {{lateral}} ({{walk}}) walk
    JOIN ({ALL_ARTIFACTS}) other ON other.fingerprint = walk.key
    WHERE walk.key <> a.fingerprint
"""  # noqa: S608
_QUERIES: Final = {"lineage_up": (_UP, _FROM_UP), "lineage_down": (_DOWN, _FROM_DOWN)}
_OF_ROW: Final = "SELECT a.fingerprint, a.kind, a.name, a.content_digest, a.content_id, a.status"
_OF_GIVEN: Final = f"SELECT * FROM ({ALL_ARTIFACTS}) WHERE fingerprint = given"  # noqa: S608
_LACKS: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


def lacks_room(error: Exception) -> bool:
    """Whether an error of DuckDB is one of the disk or the memory, and no verdict about the file."""
    import duckdb  # imported here because it is slow and not every command needs it

    return isinstance(error, duckdb.OutOfMemoryException) or any(lack in str(error) for lack in _LACKS)


class BrokenCatalogError(StoreError):
    """The catalog's file cannot be used and has to be made again."""


def make_tables(connection: "DuckDBPyConnection") -> None:
    """Make the tables and views in an empty database."""
    connection.execute("BEGIN")
    for name, columns in ALL_TABLES.items():
        listed = ", ".join(f"{column} {sql_type}" for column, sql_type in columns.items())
        connection.execute(f"CREATE TABLE {name} ({listed})")
    make_views(connection)
    connection.execute("INSERT INTO catalog_version VALUES (?)", [VERSION])
    connection.execute("COMMIT")


def make_views(connection: "DuckDBPyConnection") -> None:
    """Make the views and the table functions over the tables of the connection's current schema."""
    for name, (pairs, walk) in _QUERIES.items():
        view = pairs.format(lateral="LATERAL", walk=walk.format(root=_OF_ROW))
        given = pairs.format(lateral="", walk=walk.format(root=_OF_GIVEN))
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {view}")
        connection.execute(
            f"CREATE OR REPLACE MACRO {name}(given) AS TABLE {given} AND a.fingerprint = given"
        )
