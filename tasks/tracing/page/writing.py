"""Write a lineage as one HTML file that needs no network.

Without JavaScript the page has the lineage as a tree, and a table of its artifacts. With it there is a map:
boxes from the sources at the top to what was made of them, where shards are folded into one. A chosen box
shows its record, and what it was made from and what was made from it stand out.
"""

from html import escape
from pathlib import Path
from typing import Final

from tokmill.tasks.audit.report.markup import section, table
from tokmill.tasks.audit.report.page import document, static, write_document
from tokmill.tasks.store import Graph, Store
from tokmill.tasks.tracing.page.nodes import Described, Figures, Labelled, rows_of

_PACKAGE: Final = "tokmill.tasks.tracing.page"
_SCRIPTS: Final = ("layout.js", "lineage.js")
_CONTENTS: Final = {"map": "Map", "tree": "Tree", "artifacts": "Artifacts"}
_HEADINGS: Final = {
    "up": "What it was made from",
    "down": "What was made from it",
    "both": "What it was made from, and what was made from it",
}


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
        style=static("lineage.css", _PACKAGE),
    )
