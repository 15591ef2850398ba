"""Which artifacts are superseded: another version of them lacks documents that were taken down.

This follows from the records alone. A takedown is made from the packed artifact that it replaces, and an
exclusion (for packing again) from the mixture that it replaces. Artifacts made from a replaced one, such
as an export or a card, are superseded as well. Since nothing is marked, no mark can be lost or left behind
when a version is removed. Instead of a replacement that was removed, the one that replaced it counts; a
version whose replacements were all removed is superseded by nothing.
"""

from collections.abc import Sequence
from typing import Final

import orjson

from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.lineage_views import ALL_ARTIFACTS, ALL_INPUTS
from tokmill.tasks.store.tombstones import MOST_REASON_CHARS

TAKING_THE_PLACE: Final = (
    "((a.stage = 'takedown' AND i.role = 'packed') OR (a.stage = 'exclude' AND i.role = 'mixture'))"
)
"""SQL: whether artifact `a` takes the place of its input `i`."""

MADE_FROM: Final = f"(NOT {TAKING_THE_PLACE} AND i.role NOT IN ('earlier_mixtures', 'earlier_packings'))"
"""SQL: whether artifact `a` was made from its input `i` otherwise; a card only lists earlier versions."""

_SUPERSEDED = f"""
    WITH RECURSIVE every AS NOT MATERIALIZED ({ALL_INPUTS}),
    made AS NOT MATERIALIZED ({ALL_ARTIFACTS}),
    replaced(fingerprint, maker) AS (
        SELECT DISTINCT i.input_fingerprint, a.fingerprint
        FROM every i JOIN made a USING (fingerprint) WHERE {TAKING_THE_PLACE}
    ),
    superseded(fingerprint, maker) AS (
        FROM replaced
        UNION
        SELECT a.fingerprint, s.maker
        FROM superseded s
        JOIN every i ON i.input_fingerprint = s.fingerprint
        JOIN made a ON a.fingerprint = i.fingerprint
        WHERE {MADE_FROM}
          AND a.stage IN ('pack_plan', 'pack_shard', 'pack', 'export_shard', 'export', 'card')
    ),
    standing(maker, there) AS (
        SELECT DISTINCT maker, maker FROM superseded
        UNION
        SELECT s.maker, r.maker
        FROM standing s JOIN replaced r ON r.fingerprint = s.there
        WHERE s.there IN (SELECT fingerprint FROM made WHERE status = 'removed')
    )
    SELECT s.fingerprint, list_sort(list(DISTINCT m.kind || '/' || m.name || '@' || m.label)) AS makers,
           list_sort(list(DISTINCT m.params)) AS params
    FROM superseded s
    JOIN standing t ON t.maker = s.maker
    JOIN artifacts f ON f.fingerprint = s.fingerprint
    JOIN artifacts m ON m.fingerprint = t.there
    GROUP BY s.fingerprint
"""  # noqa: S608 - constants


_ANY: Final = "SELECT 1 FROM artifacts WHERE stage IN ('takedown', 'exclude') LIMIT 1"


def superseded(catalog: Catalog) -> dict[str, list[str]]:
    """Return every superseded artifact by fingerprint, with its replacements (`kind/name@label`)."""
    if not catalog.query(_ANY):  # most stores have none, and the walk below reads every input
        return {}
    return {row["fingerprint"]: row["makers"] for row in catalog.query(_SUPERSEDED)}


def reasons(catalog: Catalog) -> dict[str, str]:
    """Return why every superseded artifact may go: `superseded by packed/x@v2: asked for by …`."""
    return {row["fingerprint"]: _reason(row["makers"], row["params"]) for row in catalog.query(_SUPERSEDED)}


def _reason(makers: Sequence[str], params: Sequence[str]) -> str:
    given = dict.fromkeys(orjson.loads(each).get("reason", "") for each in params)
    told = "; ".join(reason for reason in given if reason)
    return f"superseded by {', '.join(makers)}{f': {told}' if told else ''}"[:MOST_REASON_CHARS]
