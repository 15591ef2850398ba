"""An artifact as a person at a notebook handles it: its path, its figures, and what it holds."""

from collections.abc import Mapping
from functools import cached_property
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
    from tokmill.flows.library.runs import Lineage
    from tokmill.tasks.store import Record, Store
    from tokmill.tasks.store.lineage import Direction

_READERS: Final[Mapping[str, str]] = {
    "tokenizer": "flows.library.training:TrainedTokenizer.of",
    "packed": "flows.library.packing:Packed",
    "encoded": "flows.library.encoding:columns_of",
    "audit": "flows.library.auditing:Audit",
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
        return _table([entry.model_dump() for entry in self.record.files], "Files")

    @property
    def accounts(self) -> Table:
        """What went in and what became of it: source, unit, side (in, added, became), name, amount."""
        from tokmill.tasks.store.rows import artifact_rows  # noqa: PLC0415 - imports all of the catalog

        rows = artifact_rows(self.record)["accounts"]
        return _table([{k: v for k, v in row.items() if k != "fingerprint"} for row in rows], "Accounts")

    def lineage(self, direction: "Direction" = "up") -> "Lineage":
        """Return what it was made from (`up`), what was made from it (`down`), or `both`."""
        from tokmill.flows.library.runs import Lineage  # noqa: PLC0415 - imports the catalog

        return Lineage.of(self.store, self.ref, direction)

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
        found = {path.stem: path for path in paths if path.suffix == ".parquet"}
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise UsageError(f"{self.reference} has no table {name!r}; it has {known}")
        return Table(pq.read_table(self.path / found[name]), f"{name} of {self.reference}")

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
        found = [entry.path for entry in self.record.files if entry.path.endswith(".md")]
        if not found:
            raise UsageError(f"{self.reference} has no text; cards and audits have one")
        return (self.path / found[0]).read_text("utf-8")

    def __repr__(self) -> str:
        return f"Artifact({self.reference!r}, {self.ref.fingerprint[:16]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Artifact) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash(self.ref)

    def _repr_html_(self) -> str:
        record = self.record
        pairs = dict(labelled(name, value) for name, value in record.metrics.items())
        about = {
            "fingerprint": record.fingerprint[:16],
            "folder": self.store.address(self.ref),
            "size": f"{size(record.num_bytes)} in {len(record.files):,} files",
            "made": f"{record.timings.ended[:19].replace('T', ' ')} UTC in {span(record.timings.seconds)}",
        }
        return markup.sheet(self.reference, markup.figures({**pairs, **about}))


def _table(rows: list[dict[str, Any]], title: str) -> Table:
    import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

    return Table(pa.Table.from_pylist(rows), title)
