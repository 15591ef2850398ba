"""Write a lineage as one HTML file that needs no network.

Without JavaScript the page has the lineage as a tree, and a table of its artifacts. With it there is a map:
boxes from the sources at the top to what was made of them, where shards are folded into one. A chosen box
shows its record, and what it was made from and what was made from it stand out.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from tokmill.tasks.core.stage import Account, Scalar
from tokmill.tasks.pages.page import document, section, static, table, write_document
from tokmill.tasks.store import Graph, InputEntry, Node, Record, Store
from tokmill.tasks.store.lineage import families
from tokmill.tasks.store.run_queries import short_ids

_PACKAGE: Final = "tokmill.tasks.tracing"
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
    """Write the page of a lineage.

    Args:
        store: which the lineage is of.
        graph: the lineage.
        path: the file.
        figures: returns the most important metrics of an artifact of a kind, on one line.
        labelled: returns a metric as it is shown, its label and its value.

    Raises:
        StoreError: the file cannot be written, or a record cannot be read.
    """
    write_document(path, page_of(store, graph, figures=figures, labelled=labelled))


def page_of(store: Store, graph: Graph, *, figures: Figures, labelled: Labelled) -> str:
    """Return the page of a lineage; the same store gives the same bytes."""
    described = Described(store, graph, figures, labelled)
    nodes = described.nodes()
    rows = rows_of(described, nodes)
    edges = dict.fromkeys((edge.source, edge.target) for edge in graph.edges)
    caption = f"{len(rows):,} artifacts and sources"
    return document(
        f"Lineage of {graph.nodes[graph.root].title}",
        _CONTENTS,
        [
            section(
                "map",
                _HEADINGS[graph.direction],
                '<p class="without gap">The map needs JavaScript; the tree and the table have all of it.</p>',
                static("map.html", _PACKAGE),
            ),
            section("tree", "Tree", f'<pre tabindex="0" aria-label="Tree">{escape(graph.to_tree())}</pre>'),
            section("artifacts", "Artifacts", table(caption, rows, {name: name for name in rows[0]})),
        ],
        data={"root": graph.root, "nodes": nodes, "edges": list(edges)},
        scripts=[static(name, _PACKAGE) for name in _SCRIPTS],
    )


class Described:
    """The nodes of a graph, with all that the page says of them.

    Args:
        store: which the graph is of.
        graph: the lineage.
        figures: returns the most important metrics of an artifact of a kind, on one line.
        labelled: returns a metric as it is shown, its label and its value.
    """

    def __init__(self, store: Store, graph: Graph, figures: Figures, labelled: Labelled) -> None:
        self._store = store
        self._figures = figures
        self._labelled = labelled
        self._graph = graph
        self.records = self._read()
        self._runs = self._names_of_runs()
        self.run_heads = dict(zip(self._runs, short_ids(store, list(self._runs)), strict=True))

    def _read(self) -> dict[str, Record]:
        known = [
            node
            for node in self._graph.nodes.values()
            if node.kind and node.status in ("published", "removed")
        ]
        return {node.key: self._store.past(node.kind, node.key) for node in known}

    def _names_of_runs(self) -> dict[str, tuple[str, str]]:
        ids = {run_id for record in self.records.values() if (run_id := run_of(record))}
        rows = self._store.catalog.query(_RUNS, {"ids": sorted(ids)})
        return {row["run_id"]: (row["name"] or "", row["url"] or "") for row in rows}

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes as plain data, in the graph's order."""
        family_of = families(self._graph)
        return [{**self._node(node), "family": family_of[node.key]} for node in self._graph.nodes.values()]

    def _node(self, node: Node) -> dict[str, Any]:
        plain = {
            name: getattr(node, name)
            for name in ("key", "title", "status", "kind", "name", "label", "content_digest")
        }
        record = self.records.get(node.key)
        if record is not None:
            return {
                **plain,
                "figures": self._figures(record.kind, record.metrics),
                "notice": self._notice(node),
                "facts": self._facts(record),
                "tables": {
                    "Figures": [self._labelled(name, value) for name, value in record.metrics.items()],
                    "Parameters": _flat(record.params),
                    "Accounts": [_account(account) for account in record.accounts],
                },
            }
        facts = [("role", node.role)] if node.role else [("content", node.content_digest)]
        notice = "It is no longer in the store, and left no record." if node.status == "missing" else ""
        files = _sources(self._used_outside(node))
        figures = "from outside of the store" if node.status == "external" else ""
        return {**plain, "figures": figures, "notice": notice, "facts": facts, "tables": {"Files": files}}

    def _used_outside(self, node: Node) -> list[InputEntry]:
        """The inputs that a node from outside of the store stands for."""
        users = [edge.target for edge in self._graph.edges if edge.source == node.key]
        records = [self.records[user] for user in users if user in self.records]
        entries = [entry for record in records for entry in record.inputs]
        return [entry for entry in entries if entry.kind is None and entry.role == node.role]

    def _notice(self, node: Node) -> str:
        if node.status != "removed":
            return ""
        left = self._store.tombstone(node.kind, node.key)
        return left.words if left is not None else ""

    def _facts(self, record: Record) -> Pairs:
        made = record.provenance
        name, url = self._runs.get(run_of(record), ("", ""))
        facts = {
            "fingerprint": record.fingerprint,
            "content": record.content_digest,
            "size": f"{record.num_bytes:,} bytes in {len(record.files):,} files",
            "stage": f"{record.payload.get('stage')}, version {record.payload.get('version')}",
            "made": f"{record.timings.ended[:19].replace('T', ' ')} UTC, in {record.timings.seconds:.3g} s",
            "by": made.user or "",
            "run": f"{run_of(record)} {name}".strip(),
            "page of the run": url,
            "command": made.command or "",
            "to see it": f"tokmill show {record.reference}",
        }
        return [(name, value) for name, value in facts.items() if value]


def run_of(record: Record) -> str:
    """Return the id of the run that made an artifact; '' where none is known."""
    return record.provenance.run_id or record.provenance.flow_run_id or ""


def _flat(value: Any, name: str = "") -> Pairs:
    """Return nested parameters with dotted names, as JSON."""
    if isinstance(value, Mapping) and value:
        parts = [_flat(each, f"{name}.{key}" if name else str(key)) for key, each in value.items()]
        return [pair for part in parts for pair in part]
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode("utf-8")
    return [(name, text)] if name else []


def _account(account: Account) -> tuple[str, str]:
    became = ", ".join(f"{name} {amount:,}" for name, amount in account.became.items() if amount)
    return f"{account.source}, {account.unit}", f"in {account.num_in:,}; {became or 'nothing came of it'}"


def _sources(entries: Sequence[InputEntry]) -> Pairs:
    shown = [(entry.origin or entry.role, entry.digest) for entry in entries[:_MOST_FILES]]
    more = len(entries) - len(shown)
    return [*shown, ("…", f"{more:,} more")] if more else shown


def rows_of(described: Described, nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table that the page shows without JavaScript."""
    rows = []
    for node in nodes:
        record = described.records.get(node["key"])
        rows.append(
            {
                "artifact": node["title"],
                "state": node["status"],
                "figures": node["figures"],
                "bytes": record.num_bytes if record else None,
                "content": node["content_digest"][:12],
                "made (UTC)": record.timings.ended[:16].replace("T", " ") if record else "",
                "run": described.run_heads.get(run_of(record), run_of(record)) if record else "",
                "note": node["notice"],
            }
        )
    return rows
