"""Write a lineage as one HTML file that needs no network.

Without JavaScript the page has the lineage as a tree, and a table of its artifacts; with it there is a map.
"""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from tokmill.tasks.core.stage import Scalar
from tokmill.tasks.pages.page import document, section, static, table, write_document
from tokmill.tasks.store import Graph, Node, Record, Store
from tokmill.tasks.store.lineage import families
from tokmill.tasks.store.references import short_ids
from tokmill.tasks.store.rows import flat

_PACKAGE: Final = "tokmill.tasks.tracing"
_SHOWN: Final = ("key", "title", "status", "kind", "name", "label", "content_digest")
_SCRIPTS: Final = ("layout.js", "lineage.js")
_CONTENTS: Final = {"map": "Map", "tree": "Tree", "artifacts": "Artifacts"}
_HEADINGS: Final = {
    "up": "What it was made from",
    "down": "What was made from it",
    "both": "What it was made from, and what was made from it",
}
Figures: TypeAlias = Callable[[str, Mapping[str, Scalar]], str]
Labelled: TypeAlias = Callable[[str, Scalar], tuple[str, str]]
Pairs: TypeAlias = list[tuple[str, str]]
_MOST_FILES: Final = 500
_RUNS: Final = (
    "SELECT run_id, name, url FROM runs WHERE is_latest AND run_id IN (SELECT unnest($ids::VARCHAR[]))"
)


def write_page(store: Store, graph: Graph, path: Path, *, figures: Figures, labelled: Labelled) -> None:
    """Write the page of a lineage; raises StoreError if the file cannot be written, or a record be read."""
    write_document(path, page_of(store, graph, figures=figures, labelled=labelled))


def page_of(store: Store, graph: Graph, *, figures: Figures, labelled: Labelled) -> str:
    """Return the page of a lineage; the same store gives the same bytes.

    `figures` returns the most important metrics of an artifact of a kind, on one line, and `labelled` the
    label and the value with which a metric is shown.
    """
    records = {
        node.key: store.past(node.kind, node.key)
        for node in graph.nodes.values()
        if node.kind and node.status in ("published", "removed")
    }
    run_ids = sorted({run_id for record in records.values() if (run_id := _run_of(record))})
    runs = {row["run_id"]: row for row in store.catalog.query(_RUNS, {"ids": run_ids})}
    heads = dict(zip(runs, short_ids(store, list(runs)), strict=True))
    family_of = families(graph)
    nodes, rows = [], []
    for node in graph.nodes.values():
        record = records.get(node.key)
        if record is None:
            said, run = _outside(node, graph, records), ""
        else:
            run = _run_of(record)
            removal = store.tombstone(node.kind, node.key) if node.status == "removed" else None
            said = {
                "figures": figures(record.kind, record.metrics),
                "notice": removal.words if removal else "",
                "facts": _facts(record, runs.get(run, {})),
                "tables": _tables(record, labelled),
            }
        plain = {name: getattr(node, name) for name in _SHOWN}
        nodes.append({**plain, **said, "family": family_of[node.key]})
        rows.append(
            {
                "artifact": node.title,
                "state": node.status,
                "figures": said["figures"],
                "bytes": record.num_bytes if record else None,
                "content": node.content_digest[:12],
                "made (UTC)": record.timings.ended[:16].replace("T", " ") if record else "",
                "run": heads.get(run, run),
                "note": said["notice"],
            }
        )
    edges = dict.fromkeys((edge.source, edge.target) for edge in graph.edges)
    without = '<p class="without gap">The map needs JavaScript; the tree and the table have all of it.</p>'
    tree = f'<pre tabindex="0" aria-label="Tree">{escape(graph.to_tree())}</pre>'
    listed = table(f"{len(rows):,} artifacts and sources", rows, {name: name for name in rows[0]})
    return document(
        f"Lineage of {graph.nodes[graph.root].title}",
        _CONTENTS,
        [
            section("map", _HEADINGS[graph.direction], without, static("map.html", _PACKAGE)),
            section("tree", "Tree", tree),
            section("artifacts", "Artifacts", listed),
        ],
        data={"root": graph.root, "nodes": nodes, "edges": list(edges)},
        scripts=[static(name, _PACKAGE) for name in _SCRIPTS],
    )


def _outside(node: Node, graph: Graph, records: Mapping[str, Record]) -> dict[str, Any]:
    """Describe a node without a record: inputs from outside of the store, or what left no record."""
    users = [
        records[edge.target] for edge in graph.edges if edge.source == node.key and edge.target in records
    ]
    entries = [
        entry for user in users for entry in user.inputs if entry.kind is None and entry.role == node.role
    ]
    files = [(entry.origin or entry.role, entry.digest) for entry in entries[:_MOST_FILES]]
    if len(entries) > _MOST_FILES:
        files.append(("…", f"{len(entries) - _MOST_FILES:,} more"))
    lost = "It is no longer in the store, and left no record."
    return {
        "figures": "from outside of the store" if node.status == "external" else "",
        "notice": lost if node.status == "missing" else "",
        "facts": [("role", node.role)] if node.role else [("content", node.content_digest)],
        "tables": {"Files": files},
    }


def _facts(record: Record, run: Mapping[str, Any]) -> Pairs:
    made = record.provenance
    facts = {
        "fingerprint": record.fingerprint,
        "content": record.content_digest,
        "size": f"{record.num_bytes:,} bytes in {len(record.files):,} files",
        "stage": f"{record.payload.get('stage')}, version {record.payload.get('version')}",
        "made": f"{record.timings.ended[:19].replace('T', ' ')} UTC, in {record.timings.seconds:.3g} s",
        "by": made.user or "",
        "run": f"{_run_of(record)} {run.get('name') or ''}".strip(),
        "page of the run": run.get("url") or "",
        "command": made.command or "",
        "to see it": f"tokmill show {record.reference}",
    }
    return [(name, value) for name, value in facts.items() if value]


def _run_of(record: Record) -> str:
    """Return the id of the run that made an artifact; '' where none is known."""
    return record.provenance.run_id or record.provenance.flow_run_id or ""


def _tables(record: Record, labelled: Labelled) -> dict[str, Pairs]:
    params = [
        (name, value if isinstance(value, str) else orjson.dumps(value, default=str).decode("utf-8"))
        for name, value in flat(record.params)
    ]
    accounts = []
    for each in record.accounts:
        became = ", ".join(f"{name} {amount:,}" for name, amount in each.became.items() if amount)
        said = f"in {each.num_in:,}; {became or 'nothing came of it'}"
        accounts.append((f"{each.source}, {each.unit}", said))
    figures = [labelled(name, value) for name, value in record.metrics.items()]
    return {"Figures": figures, "Parameters": params, "Accounts": accounts}
