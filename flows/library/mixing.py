"""`tokmill.mix`: encoded columns, in the order in which a model reads their documents."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from tokmill.flows.errors import UsageError
from tokmill.flows.library.artifact import Artifact
from tokmill.flows.library.bench import Bench, parted
from tokmill.flows.library.encoding import EncodedColumn
from tokmill.flows.library.options import MixOptions
from tokmill.flows.library.table import Table
from tokmill.tasks.core.markdown import number
from tokmill.tasks.mixing.params import MixParams
from tokmill.tokenizer.core import markup

if TYPE_CHECKING:
    from tokmill.tasks.formats.mixture import MixtureManifest

EncodedColumns: TypeAlias = EncodedColumn | Mapping[str, EncodedColumn]


class Mixed:
    """A mixture: which documents come, in which order.

    Attributes:
        artifact: the artifact, with its path and record.
        bench: the profile that made it.
    """

    def __init__(self, artifact: Artifact, bench: Bench) -> None:
        self.artifact = artifact
        self.bench = bench

    @cached_property
    def manifest(self) -> "MixtureManifest":
        """What was asked for and what each source gives."""
        from tokmill.tasks.formats.mixture import Mixture  # noqa: PLC0415 - imports pyarrow

        return Mixture.open(self.artifact.path).manifest

    @property
    def figures(self) -> dict[str, Any]:
        """Documents, tokens, and each source's share."""
        return dict(self.artifact.figures)

    @property
    def sources(self) -> Table:
        """One row per source: documents and tokens given, epochs, share asked for and given."""
        import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

        rows = [entry.model_dump(mode="json") for entry in self.manifest.sources]
        return Table(pa.Table.from_pylist(rows), "Sources of a mixture")

    def __repr__(self) -> str:
        found = self.manifest
        amounts = f"{found.num_documents:,} documents, {found.num_tokens:,} tokens"
        return f"Mixed({self.artifact.reference!r}, {amounts})"

    def _repr_html_(self) -> str:
        columns = ("source", "documents", "tokens", "epochs", "asked for", "given")
        rows = [
            (
                entry.source,
                f"{entry.drawn_documents:,}",
                f"{entry.drawn_tokens:,}",
                number(entry.epochs),
                f"{entry.requested_share:.2%}",
                f"{entry.share:.2%}",
            )
            for entry in self.manifest.sources
        ]
        detail = f"{self.manifest.num_documents:,} documents, {self.manifest.num_tokens:,} tokens"
        grid = markup.grid(columns, rows, columns[1:])
        return markup.sheet(f"Mixture {self.artifact.reference}", grid, detail=detail)


def mix(
    encoded: EncodedColumns,
    *,
    name: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    **options: Unpack[MixOptions],
) -> Mixed:
    """Mix encoded columns: whole documents, so that every source has its share of tokens at every point.

        mixture = tokmill.mix({"web": web_ids, "code": code_ids}, weights={"web": 3, "code": 1}, seed=7)

    Args:
        encoded: an encoded column, or source → encoded column, from one tokenizer and with the same
            parameters. Columns of several calls of `encode` are put together; their documents are not encoded
            again.
        name: of the artifacts in the store; by default that of the encoding.
        workers: parallel tasks; by default one per core. It changes no result.
        progress: see `run`.
        **options: parameters of mixing: `weights`, `proportions` or `temperature`, `max_repetition`,
            `total_tokens`, `schedule`, `warmup`, `annealing`, `curriculum`, `seed`, …; without any, every
            document comes once.

    Raises:
        UsageError: columns are of different tokenizers, or there is no such parameter.
        ProfileError: a parameter is invalid, or a weight is missing.
        RunError: the request is not feasible.
    """
    (params,) = parted("mix", options, MixParams)
    named = {} if name is None else {"name": name}
    bench = together(encoded).with_sections(mix=params, **named)
    made, done = bench.made("mixture", workers=workers, progress=progress)
    return Mixed(done["mixture"], made)


def together(encoded: EncodedColumns) -> Bench:
    """Return the profile whose encoding has these columns, and no others."""
    if not isinstance(encoded, EncodedColumn | Mapping):
        raise UsageError(
            f"mix: the documents are of type {type(encoded).__name__}; pass what tokmill.encode gives, or a "
            "table of that by source, e.g. {'web': web_ids}"
        )
    columns = {encoded.source: encoded} if isinstance(encoded, EncodedColumn) else dict(encoded)
    if not columns:
        raise UsageError("mix: there is no encoded column; encode some first")
    for source, column in columns.items():
        if not isinstance(column, EncodedColumn):
            raise UsageError(
                f"mix: encoded[{source!r}] is of type {type(column).__name__}; pass what tokmill.encode gives"
            )
        if not column.bench.table:
            raise UsageError(
                f"mix: {column.artifact.reference} was opened, not encoded here; encode the texts again, "
                "which finds it in the store, or run a profile"
            )
    first = next(iter(columns.values()))
    whole = all(
        column.artifact == first.artifact and name == column.source for name, column in columns.items()
    )
    if whole and set(first.bench.table["sources"]) == set(columns):
        return first.bench
    return _joined(columns)


def _joined(columns: Mapping[str, EncodedColumn]) -> Bench:
    """Return a profile of the sources of several encodings.

    Raises:
        UsageError: they differ in their store, tokenizer or parameters.
    """
    (name, first), *others = columns.items()
    (used,) = first.artifact.record.refs("tokenizer")
    for other, column in others:
        (its,) = column.artifact.record.refs("tokenizer")
        problem = (
            ("tokenizers" if its.content_digest != used.content_digest else "")
            or ("parameters" if column.artifact.params != first.artifact.params else "")
            or ("holdouts" if column.bench.table.get("holdout") != first.bench.table.get("holdout") else "")
            or ("stores" if column.artifact.store.location != first.artifact.store.location else "")
        )
        if problem:
            raise UsageError(
                f"mix: {name!r} and {other!r} were encoded with different {problem}; encode them alike"
            )
    sources = {source: column.bench.table["sources"][column.source] for source, column in columns.items()}
    table = {
        "name": first.bench.table["name"],
        "sources": sources,
        "tokenizer": {"use": used.fingerprint},
        "encode": first.bench.table.get("encode", {}),
    }
    return Bench(first.bench.store, table).with_sections(holdout=first.bench.table.get("holdout"))
