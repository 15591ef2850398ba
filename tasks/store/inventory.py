"""What is in a store: artifacts, what they were made from, labels, aliases and runs; read from the catalog.

The artifacts are read first: what is published later is not in it, so that nobody decides to remove it, and
aliases, runs and labels that were added later can only keep more.
"""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import orjson

from tokmill.tasks.store import disk
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.record import MOST_REASON_CHARS
from tokmill.tasks.store.retention import Inventory, Item, Label, PastRun
from tokmill.tasks.store.tables import ALL_ARTIFACTS, ALL_INPUTS

if TYPE_CHECKING:
    from tokmill.tasks.store.catalog import Catalog

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
_ARTIFACTS = """
    SELECT a.fingerprint, a.kind, a.name, a.label, a.num_bytes, f.mtime_ns, a.content_digest
    FROM artifacts a JOIN catalog_files f ON f.key = a.fingerprint
    ORDER BY ALL
"""
_INPUTS = f"""
    SELECT i.fingerprint, i.input_kind, i.input_fingerprint, i.digest
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.input_kind IS NOT NULL AND {MADE_FROM}
    ORDER BY ALL
"""  # noqa: S608 - a constant
_EQUAL_FILES = """
    SELECT a.kind, f.fingerprint, f.path, f.size_bytes FROM files f JOIN artifacts a USING (fingerprint)
    WHERE f.size_bytes > 0 AND f.digest IN (SELECT digest FROM files GROUP BY digest HAVING count(*) > 1)
    ORDER BY a.ended, f.fingerprint, f.path
"""
_LABELS = "SELECT kind, name, number, fingerprint FROM labels ORDER BY ALL"
_ALIASES = "SELECT kind, name, alias, fingerprint FROM aliases ORDER BY ALL"
_RUNS = """
    SELECT r.run_id, r.profile, r.state, f.mtime_ns,
           coalesce(list(a.fingerprint ORDER BY a.position) FILTER (a.fingerprint IS NOT NULL), [])
    FROM runs r JOIN catalog_files f ON f.key = r.run_id AND starts_with(f.path, 'runs/')
    LEFT JOIN run_artifacts a USING (run_id, attempt)
    GROUP BY r.run_id, r.attempt, r.profile, r.state, r.started, f.mtime_ns ORDER BY r.started, r.run_id
"""


def superseded(catalog: "Catalog") -> dict[str, list[str]]:
    """Return every superseded artifact by fingerprint, with its replacements (`kind/name@label`).

    Another version of it lacks documents that were taken down. This follows from the records alone: a
    takedown is made from the packed artifact that it replaces, and an exclusion (for packing again) from the
    mixture that it replaces. Artifacts made from a replaced one, such as an export or a card, are superseded
    as well. Instead of a replacement that was removed, the one that replaced it counts; a version whose
    replacements were all removed is superseded by nothing.
    """
    if not catalog.query(_ANY):  # most stores have none, and the walk below reads every input
        return {}
    return {row["fingerprint"]: row["makers"] for row in catalog.query(_SUPERSEDED)}


def reasons(catalog: "Catalog") -> dict[str, str]:
    """Return why every superseded artifact may go: `superseded by packed/x@v2: asked for by …`."""
    texts = {}
    for row in catalog.query(_SUPERSEDED):
        told = dict.fromkeys(orjson.loads(params).get("reason", "") for params in row["params"])
        said = "; ".join(filter(None, told))
        text = f"superseded by {', '.join(row['makers'])}{f': {said}' if said else ''}"
        texts[row["fingerprint"]] = text[:MOST_REASON_CHARS]
    return texts


def take_inventory(layout: Layout, catalog: "Catalog") -> Inventory:
    """Read what is in a store, from its catalog."""
    rows = catalog.ask(_ARTIFACTS).rows
    linked = _linked_bytes(layout, catalog)
    items = {
        key: Item(key, kind, name, label, num_bytes - linked[key], published_ns)
        for key, kind, name, label, num_bytes, published_ns, _ in rows
    }
    equal = defaultdict(list)
    for fingerprint, kind, *_, digest in rows:
        equal[kind, digest].append(fingerprint)
    inputs = defaultdict[str, list[str]](list)
    for made, kind, fingerprint, digest in catalog.ask(_INPUTS).rows:
        inputs[made] += [fingerprint] if fingerprint in items else equal[kind, digest]
    labels = [Label(*row) for row in catalog.ask(_LABELS).rows if row[3] in items]
    aliases = [(f"{kind}/{name}@{alias}", owner) for kind, name, alias, owner in catalog.ask(_ALIASES).rows]
    runs = [PastRun(*row) for row in catalog.ask(_RUNS).rows]
    return Inventory(items, inputs, labels, aliases, runs, superseded(catalog))


def _linked_bytes(layout: Layout, catalog: "Catalog") -> Counter[str]:
    """Return by fingerprint the bytes of files that an artifact made before holds by another name."""
    linked, known = Counter[str](), set[tuple[int, int]]()
    for kind, fingerprint, path, num_bytes in catalog.ask(_EQUAL_FILES).rows:
        try:
            identity = disk.state(layout.artifact(kind, fingerprint) / path).identity
        except FileNotFoundError:
            continue
        if identity in known:
            linked[fingerprint] += num_bytes
        elif identity is not None:
            known.add(identity)
    return linked
