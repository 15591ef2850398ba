"""The lineage of an artifact, for a notebook: drawn as a tree, and as tables of nodes and edges."""

from dataclasses import dataclass
from html import escape

from tokmill.flows.library.table import Table
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Direction, Graph, Store, lineage
from tokmill.tokenizer.core import markup


@dataclass(frozen=True)
class Lineage:
    """What an artifact was made from, or what was made from it.

    Attributes:
        graph: the graph, with `to_tree()`, `to_mermaid()` and `to_json()`.
    """

    graph: Graph

    @classmethod
    def of(cls, store: Store, ref: ArtifactRef, direction: Direction) -> "Lineage":
        """Follow the records of a store, up, down, or both."""
        return cls(lineage(store, ref, direction))

    @property
    def nodes(self) -> Table:
        """One row per artifact, or per role of inputs from outside: key, title, status, kind, name, label."""
        return _table([dict(vars(node)) for node in self.graph.nodes.values()], "Nodes")

    @property
    def edges(self) -> Table:
        """One row per use: `source` is an input of `target`, in a role."""
        return _table([dict(vars(edge)) for edge in self.graph.edges], "Edges")

    def to_tree(self) -> str:
        """Return the graph as an indented tree, shards drawn together."""
        return self.graph.to_tree()

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart."""
        return self.graph.to_mermaid()

    def __repr__(self) -> str:
        return self.to_tree()

    def _repr_html_(self) -> str:
        return markup.sheet("Lineage", f"<pre>{escape(self.to_tree())}</pre>")


def _table(rows: list[dict[str, object]], title: str) -> Table:
    import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

    return Table(pa.Table.from_pylist(rows), title)
