"""The catalog's views of lineage, `lineage_up` and `lineage_down`, for questions in SQL.

A row is an artifact, another that it was made from (`up`) or that was made from it (`down`), and the number
of steps between them on the shortest way. The laws:

- `lineage_up` of an artifact has what `tokmill lineage --up` shows (of an input that is gone, every artifact
  with its content), and `lineage_down` what `--down` shows; both go on through artifacts that were removed,
  of which the catalog has the inputs, too;
- a filter by constants on `fingerprint` or `artifact` is applied before the walk, so that a question about
  one artifact costs one walk; without such a filter, every pair of the store is found;
- each view is a table function of a fingerprint as well, which can be the result of a subquery;
- a walk ends after `MOST_STEPS`, and so ends if it goes in a circle (equal bytes made from each other).

A walk down finds rows by the numbers of contents (`tasks.store.tables`), and believes none of them: of the
rows near its way (`near_by_number`), it goes along those whose kind and digest are the ones that it reached.

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
        "status",
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
        "status",
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


def make_views(connection: "DuckDBPyConnection") -> None:
    """Make the views and the table functions over the tables of the connection's current schema.

    They replace those of an earlier version.
    """
    for name, (pairs, walk) in _QUERIES.items():
        view = pairs.format(lateral="LATERAL", walk=walk.format(root=_OF_ROW))
        given = pairs.format(lateral="", walk=walk.format(root=_OF_GIVEN))
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {view}")
        connection.execute(
            f"CREATE OR REPLACE MACRO {name}(given) AS TABLE {given} AND a.fingerprint = given"
        )
