"""The table of `tokmill ls`."""

from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.output import table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import key_figures, size
from tokmill.flows.nearest import suggestion
from tokmill.tasks.store import Store

_NUMBER = """
    SELECT count(*) AS number
    FROM labels l JOIN artifacts a ON (a.kind, a.fingerprint) = (l.kind, l.fingerprint)
    WHERE coalesce(l.kind = $kind, true)
"""


@dataclass(frozen=True)
class Listing:
    """Rows of the catalog, and the number of versions that are left out."""

    rows: list[dict[str, Any]]
    num_hidden: int


def listed(store: Store, kind: str | None, *, every: bool) -> Listing:
    """Return the versions in a store: all of them, or the latest of each name without shards.

    Raises:
        UsageError: the store has no artifact of that kind; or runs are asked for.
    """
    if kind in {"run", "runs"}:
        raise UsageError("ls: runs are no artifacts; `tokmill runs` lists them")
    gone = store.superseded()
    rows = store.catalog.versions(kind, every=every)
    versions = [{**row, "superseded_by": gone.get(row["fingerprint"], [])} for row in rows]
    if kind is not None and not versions:
        kinds = {row["kind"] for row in store.catalog.query("SELECT DISTINCT kind FROM artifacts")}
        raise UsageError(f"ls: {store.location} has no {kind}{suggestion(kind, kinds, known_as='it has')}")
    if every:
        return Listing(versions, 0)
    (total,) = store.catalog.query(_NUMBER, {"kind": kind})
    return Listing(versions, total["number"] - len(versions))


def listing_table(store: Store, rows: list[dict[str, Any]]) -> Table:
    """Return one line per version: its name, time, size and key figures."""
    lines = []
    for row in rows:
        metrics = store.read(row["kind"], row["fingerprint"]).metrics
        called = Text(f"{row['kind']}/{row['name']}@{row['label']}")
        called.append("".join(f" @{alias}" for alias in row["aliases"]), style="cyan")
        if row["superseded_by"]:
            called.append(f" superseded by {', '.join(row['superseded_by'])}", style="yellow")
        made = row["ended"][:16].replace("T", " ")
        lines.append(
            (called, made, size(row["num_bytes"]), Text(key_figures(row["kind"], metrics), style="dim"))
        )
    return table(("artifact", "made (UTC)", "size", "key figures"), lines, right=("size",))
