"""The catalog's views of lineage, `lineage_up` and `lineage_down`, for questions in SQL.

A row is an artifact, another that it was made from (`up`) or that was made from it (`down`), and the number
of steps between them on the shortest way. The laws:

- `lineage_up` of an artifact has what `tokmill lineage --up` shows (of an input that is gone, every artifact
  with its content; nothing behind one that was removed, whose inputs only its tombstone has), and
  `lineage_down` what `--down` shows;
- a filter by constants on `fingerprint` or `artifact` is applied before the walk, so that a question about
  one artifact costs one walk; without such a filter, every pair of the store is found;
- each view is a table function of a fingerprint as well, which can be the result of a subquery;
- a walk ends after `MOST_STEPS`, and so ends if it goes in a circle (equal bytes made from each other).

The walk is a lateral join, since DuckDB pushes filters below it, and not into a recursive query (see
docs/adr/0031-views-of-lineage.md). Views hold no rows, so they are as new as the tables.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_STEPS: Final = 256
VIEWS: Final[dict[str, tuple[str, ...]]] = {
    "lineage_up": (
        "fingerprint",
        "artifact",
        "depth",
        "input_fingerprint",
        "input_kind",
        "input_name",
        "input_label",
        "digest",
        "origin",
    ),
    "lineage_down": (
        "fingerprint",
        "artifact",
        "depth",
        "user_fingerprint",
        "user_kind",
        "user_name",
        "user_label",
        "digest",
    ),
}
"""The views, with their columns."""

_FROM_UP: Final = f"""
    WITH RECURSIVE up(key, kind, name, digest, origin, depth) AS (
        SELECT fingerprint, kind, name, content_digest, NULL::VARCHAR, 0 FROM ({{root}})
        UNION
        SELECT coalesce(named.fingerprint, equal.fingerprint, i.input_fingerprint), i.input_kind,
               i.input_name, i.digest, i.origin, up.depth + 1
        FROM up JOIN inputs i ON i.fingerprint = up.key
        LEFT JOIN artifacts named
            ON named.fingerprint = i.input_fingerprint AND named.content_digest = i.digest
        LEFT JOIN artifacts equal
            ON named.fingerprint IS NULL AND equal.kind = i.input_kind AND equal.content_digest = i.digest
        WHERE up.depth < {MOST_STEPS}
    )
    SELECT key, kind, name, digest, origin, min(depth) AS depth FROM up WHERE depth > 0 GROUP BY ALL
"""  # noqa: S608 - constants
_FROM_DOWN: Final = f"""
    WITH RECURSIVE down(key, kind, digest, depth) AS (
        SELECT fingerprint, kind, content_digest, 0 FROM ({{root}})
        UNION
        SELECT made.fingerprint, made.kind, made.content_digest, down.depth + 1
        FROM down JOIN inputs i ON i.input_kind = down.kind AND i.digest = down.digest
        JOIN artifacts made ON made.fingerprint = i.fingerprint
        WHERE down.depth < {MOST_STEPS}
    )
    SELECT key, min(depth) AS depth FROM down WHERE depth > 0 GROUP BY key
"""  # noqa: S608
_HEAD: Final = "a.fingerprint, a.kind || '/' || a.name || '@' || a.label AS artifact, walk.depth"
_UP: Final = f"""
    SELECT {_HEAD}, walk.key AS input_fingerprint, walk.kind AS input_kind,
           coalesce(other.name, walk.name) AS input_name, other.label AS input_label, walk.digest, walk.origin
    FROM artifacts a, {{lateral}} ({{walk}}) walk LEFT JOIN artifacts other ON other.fingerprint = walk.key
    WHERE walk.key IS DISTINCT FROM a.fingerprint
"""  # noqa: S608
_DOWN: Final = f"""
    SELECT {_HEAD}, other.fingerprint AS user_fingerprint, other.kind AS user_kind, other.name AS user_name,
           other.label AS user_label, other.content_digest AS digest
    FROM artifacts a, {{lateral}} ({{walk}}) walk JOIN artifacts other ON other.fingerprint = walk.key
    WHERE walk.key <> a.fingerprint
"""  # noqa: S608
_QUERIES: Final = {"lineage_up": (_UP, _FROM_UP), "lineage_down": (_DOWN, _FROM_DOWN)}
_OF_ROW: Final = "SELECT a.fingerprint, a.kind, a.name, a.content_digest"
_OF_GIVEN: Final = "SELECT * FROM artifacts WHERE fingerprint = given"


def make_views(connection: "DuckDBPyConnection") -> None:
    """Make the views and the table functions over the tables of the connection's current schema.

    They replace those of an earlier version. The tables may be views themselves (`tasks.store.beside`).
    """
    for name, (pairs, walk) in _QUERIES.items():
        view = pairs.format(lateral="LATERAL", walk=walk.format(root=_OF_ROW))
        given = pairs.format(lateral="", walk=walk.format(root=_OF_GIVEN))
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {view}")
        connection.execute(
            f"CREATE OR REPLACE MACRO {name}(given) AS TABLE {given} AND a.fingerprint = given"
        )
