"""Which artifacts are superseded: another version of them lacks documents that were taken down.

This follows from the records alone. A takedown is made from the packed artifact that it replaces, and an
exclusion (for packing again) from the mixture that it replaces. Artifacts made from a replaced one, such
as an export or a card, are superseded as well. Since nothing is marked, no mark can be lost or left behind
when a version is removed.
"""

from typing import Final

from tokmill.tasks.store.catalog import Catalog

TAKING_THE_PLACE: Final = (
    "((a.stage = 'takedown' AND i.role = 'packed') OR (a.stage = 'exclude' AND i.role = 'mixture'))"
)
"""SQL: whether artifact `a` takes the place of its input `i`."""

MADE_FROM: Final = f"(NOT {TAKING_THE_PLACE} AND i.role NOT IN ('earlier_mixtures', 'earlier_packings'))"
"""SQL: whether artifact `a` was made from its input `i` otherwise; a card only lists earlier versions."""

_SUPERSEDED = f"""
    WITH RECURSIVE superseded(fingerprint, maker) AS (
        SELECT i.input_fingerprint, a.fingerprint
        FROM inputs i JOIN artifacts a USING (fingerprint) WHERE {TAKING_THE_PLACE}
        UNION
        SELECT a.fingerprint, s.maker
        FROM superseded s
        JOIN inputs i ON i.input_fingerprint = s.fingerprint
        JOIN artifacts a ON a.fingerprint = i.fingerprint
        WHERE {MADE_FROM}
          AND a.stage IN ('pack_plan', 'pack_shard', 'pack', 'export_shard', 'export', 'card')
    )
    SELECT s.fingerprint, list_sort(list(DISTINCT m.kind || '/' || m.name || '@' || m.label)) AS makers
    FROM superseded s
    JOIN artifacts f ON f.fingerprint = s.fingerprint
    JOIN artifacts m ON m.fingerprint = s.maker
    GROUP BY s.fingerprint
"""  # noqa: S608 - a constant


def superseded(catalog: Catalog) -> dict[str, list[str]]:
    """Return every superseded artifact by fingerprint, with its replacements (`kind/name@label`)."""
    return {row["fingerprint"]: row["makers"] for row in catalog.query(_SUPERSEDED)}
