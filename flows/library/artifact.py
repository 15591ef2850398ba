"""An artifact as a person at a notebook handles it: its path, its figures, what it holds, and its lineage."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokmill.flows.errors import UsageError
from tokmill.flows.figures import labelled, size, span
from tokmill.flows.library.table import Table
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Scalar
from tokmill.tokenizer.core import markup

if TYPE_CHECKING:
    from tokmill.tasks.store import Record, Store
    from tokmill.tasks.store.lineage import Direction, Graph

_READERS: Final[Mapping[str, str]] = {
    "tokenizer": "flows.library.training:TrainedTokenizer.of",
    "packed": "flows.library.packing:Packed",
    "encoded": "flows.library.encoding:columns_of",
    "audit": "flows.library.training:Audit",
    "card": "flows.library.artifact:Artifact.text",
    "tokenizer_card": "flows.library.artifact:Artifact.text",
    "corpus": "tasks.formats.corpus:Corpus.open",
    "counts": "tasks.formats.counts:Counts.open",
    "balance": "tasks.formats.counts:Balance.open",
}
"""By kind, what opens an artifact, in a module that is imported then: of a format its path, else itself."""


class Artifact:
    """One published artifact.

    Attributes:
        store: the store that has it.
        ref: its reference.
    """

    def __init__(self, store: "Store", ref: ArtifactRef) -> None:
        self.store = store
        self.ref = ref

    @classmethod
    def find(cls, store: "Store", reference: str) -> "Artifact":
        """Return the artifact that a reference names; see `Store.find`."""
        try:
            return cls(store, store.resolve(reference))
        except StoreError as error:
            raise UsageError(str(error)) from error

    @cached_property
    def record(self) -> "Record":
        """Its whole record: payload, files, provenance, times."""
        return self.store.record(self.ref)

    @property
    def kind(self) -> str:
        """Its kind, e.g. `tokenizer`."""
        return self.ref.kind

    @property
    def name(self) -> str:
        """Its name, e.g. `quickstart`."""
        return self.ref.name

    @property
    def label(self) -> str:
        """Its version under this name, e.g. `v3`; empty if it has none yet."""
        return self.store.names.find(self.ref.kind, self.ref.name, self.ref.fingerprint) or ""

    @property
    def reference(self) -> str:
        """What finds it again: `kind/name@v3`."""
        return f"{self.kind}/{self.name}" + (f"@{self.label}" if self.label else "")

    @property
    def path(self) -> Path:
        """The folder of its files; of a store in a bucket they are fetched now."""
        return self.store.path(self.ref)

    @property
    def figures(self) -> Mapping[str, Scalar]:
        """Its metrics."""
        return self.record.metrics

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of its stage."""
        return self.record.params

    @property
    def files(self) -> Table:
        """Its files: path, size in bytes, digest."""
        return Table.of([entry.model_dump() for entry in self.record.files], "Files")

    @property
    def accounts(self) -> Table:
        """What went in and what became of it: source, unit, side (in, added, became), name, amount."""
        from tokmill.tasks.store.rows import artifact_rows  # noqa: PLC0415 - imports all of the catalog

        rows = artifact_rows(self.record)["accounts"]
        return Table.of([{k: v for k, v in row.items() if k != "fingerprint"} for row in rows], "Accounts")

    def lineage(self, direction: "Direction" = "up") -> "Lineage":
        """Return what it was made from (`up`), what was made from it (`down`), or `both`."""
        from tokmill.tasks.store import lineage  # noqa: PLC0415 - imports the catalog

        return Lineage(lineage(self.store, self.ref, direction))

    def tag(self, alias: str) -> None:
        """Point an alias at it, e.g. `prod`, whether or not it pointed elsewhere before.

        Raises:
            StoreError: the alias is malformed, or the store cannot be written to.
        """
        self.store.tag(self.ref, alias)

    def table(self, name: str) -> Table:
        """Return one of its tables: a Parquet file, by its name without the suffix, e.g. `vocab_sources`.

        Raises:
            UsageError: it has no such table.
        """
        import pyarrow.parquet as pq  # noqa: PLC0415 - `import tokmill` stays quick

        paths = [Path(entry.path) for entry in self.record.files]
        tables = {path.stem: path for path in paths if path.suffix == ".parquet"}
        if name not in tables:
            known = ", ".join(sorted(tables)) or "none"
            raise UsageError(f"{self.reference} has no table {name!r}; it has {known}")
        return Table(pq.read_table(self.path / tables[name]), f"{name} of {self.reference}")

    def open(self) -> Any:
        """Return what it holds, by its kind; its folder if there is nothing to read it with.

        A tokenizer is a `Tokenizer`, a packed set a `Packed`, an encoding a dict of `EncodedColumn` by
        source, an audit an `Audit`, a corpus a `Corpus`, counts `Counts`, a balance a `Balance`, a card its
        text.

        Raises:
            StoreError: it is damaged.
        """
        if self.kind not in _READERS:
            return self.path
        module, _, name = _READERS[self.kind].rpartition(":")
        reader = attrgetter(name)(import_module(f"tokmill.{module}"))
        return reader(self.path if module.startswith("tasks.") else self)

    def text(self) -> str:
        """Return its text in Markdown: that of a card, or the summary of an audit.

        Raises:
            UsageError: it has none.
        """
        texts = [entry.path for entry in self.record.files if entry.path.endswith(".md")]
        if not texts:
            raise UsageError(f"{self.reference} has no text; cards and audits have one")
        return (self.path / texts[0]).read_text("utf-8")

    def __repr__(self) -> str:
        return f"Artifact({self.reference!r}, {self.ref.fingerprint[:16]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Artifact) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash(self.ref)

    def _repr_html_(self) -> str:
        record = self.record
        return figures_of(
            self.reference,
            record.metrics,
            fingerprint=record.fingerprint[:16],
            folder=self.store.address(self.ref),
            size=f"{size(record.num_bytes)} in {len(record.files):,} files",
            made=f"{record.timings.ended[:19].replace('T', ' ')} UTC in {span(record.timings.seconds)}",
        )


def figures_of(
    title: str, figures: Mapping[str, Scalar], grid: str = "", detail: str = "", **more: str
) -> str:
    """Return what a notebook shows of an object with figures."""
    pairs = dict(labelled(name, value) for name, value in figures.items())
    return markup.sheet(title, grid, markup.figures({**pairs, **more}), detail=detail)


@dataclass(frozen=True)
class Lineage:
    """What an artifact was made from, or what was made from it.

    Attributes:
        graph: the graph, with `to_tree()`, `to_mermaid()` and `to_json()`.
    """

    graph: "Graph"

    @property
    def nodes(self) -> Table:
        """One row per artifact, or per role of inputs from outside: key, title, status, kind, name, label."""
        return Table.of([dict(vars(node)) for node in self.graph.nodes.values()], "Nodes")

    @property
    def edges(self) -> Table:
        """One row per use: `source` is an input of `target`, in a role."""
        return Table.of([dict(vars(edge)) for edge in self.graph.edges], "Edges")

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
