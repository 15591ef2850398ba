"""The table of `tokmill ls`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.output import table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import key_figures, size
from tokmill.flows.nearest import suggestion
from tokmill.tasks.core.stage import Scalar
from tokmill.tasks.store import Store
from tokmill.tasks.store.run_tables import scalar_of

SHOWN: Final = 200
"""The most versions that are listed on a terminal, unless asked for."""

_NUMBERS = """
    SELECT count(*) AS versions,
           count(DISTINCT l.kind || '/' || l.name)
               FILTER ($kind IS NOT NULL OR NOT ends_with(l.kind, '_shard')) AS names
    FROM labels l JOIN artifacts a ON (a.kind, a.fingerprint) = (l.kind, l.fingerprint)
    WHERE coalesce(l.kind = $kind, true)
"""
_METRICS = """
    SELECT fingerprint, name, value, text FROM metrics
    WHERE fingerprint IN (SELECT unnest($fingerprints::VARCHAR[]))
"""


@dataclass(frozen=True)
class Listing:
    """Rows of the catalog, and the numbers of versions that are left out.

    Attributes:
        rows: one per version.
        num_hidden: shards and older versions that are not asked for.
        num_beyond: versions that are, beyond the most that are listed.
    """

    rows: list[dict[str, Any]]
    num_hidden: int
    num_beyond: int


def listed(store: Store, kind: str | None, *, every: bool, most: int | None = None) -> Listing:
    """Return the versions in a store: all of them, or the latest of each name without shards.

    Args:
        store: the store.
        kind: only versions of this kind.
        every: whether older versions and shards are listed.
        most: only so many, those that were made last; all if not given.

    Raises:
        UsageError: the store has no artifact of that kind; or runs are asked for.
    """
    if kind in {"run", "runs"}:
        raise UsageError("ls: runs are no artifacts; `tokmill runs` lists them")
    gone = store.superseded()
    rows = store.catalog.versions(kind, every=every, most=most)
    versions = [{**row, "superseded_by": gone.get(row["fingerprint"], [])} for row in rows]
    if kind is not None and not versions:
        kinds = {row["kind"] for row in store.catalog.query("SELECT DISTINCT kind FROM artifacts")}
        raise UsageError(f"ls: {store.location} has no {kind}{suggestion(kind, kinds, known_as='it has')}")
    (number,) = store.catalog.query(_NUMBERS, {"kind": kind})
    num_asked = number["versions" if every else "names"]
    beyond = num_asked - len(versions) if len(versions) == most else 0  # others may publish in between
    return Listing(versions, number["versions"] - num_asked, max(beyond, 0))


def listing_table(store: Store, rows: list[dict[str, Any]]) -> Table:
    """Return one line per version: its name, time, size and key figures."""
    lines = []
    metrics = _metrics(store, rows)
    for row in rows:
        called = Text(f"{row['kind']}/{row['name']}@{row['label']}")
        called.append("".join(f" @{alias}" for alias in row["aliases"]), style="cyan")
        if row["superseded_by"]:
            called.append(f" superseded by {', '.join(row['superseded_by'])}", style="yellow")
        made = row["ended"][:16].replace("T", " ")
        lines.append(
            (
                called,
                made,
                size(row["num_bytes"]),
                Text(key_figures(row["kind"], metrics[row["fingerprint"]]), style="dim"),
            )
        )
    return table(("artifact", "made (UTC)", "size", "key figures"), lines, right=("size",))


def _metrics(store: Store, rows: list[dict[str, Any]]) -> Mapping[str, Mapping[str, Scalar]]:
    """Return the metrics of versions by fingerprint, in their order; from the catalog, not from records."""
    found: dict[str, dict[str, Scalar]] = {row["fingerprint"]: {} for row in rows}
    for row in store.catalog.query(_METRICS, {"fingerprints": list(found)}):
        found[row["fingerprint"]][row["name"]] = scalar_of(row["value"], row["text"])
    return found
