"""`tokmill.mix` and `pack`: encoded columns in the order in which a model reads them, in sequences."""

import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from tokmill.flows.errors import UsageError
from tokmill.flows.library.artifact import figures_of
from tokmill.flows.library.bench import Bench, Made, parted
from tokmill.flows.library.encoding import EncodedColumn
from tokmill.flows.library.options import DatasetOptions, MixOptions, PackOptions
from tokmill.flows.library.table import Table
from tokmill.tasks.core.markdown import number
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.packing.params import PackParams
from tokmill.tokenizer.core import markup

if TYPE_CHECKING:
    from tokmill.tasks.formats.mixture import MixtureManifest
    from tokmill.tasks.loading import PackedDataset

EncodedColumns: TypeAlias = EncodedColumn | Mapping[str, EncodedColumn]
_FIELDS = ("input_ids", "cu_seqlens", "segment_ids", "position_ids", "loss_mask")


class Mixed(Made):
    """A mixture: which documents come, in which order."""

    @cached_property
    def manifest(self) -> "MixtureManifest":
        """What was asked for and what each source gives."""
        from tokmill.tasks.formats.mixture import Mixture  # noqa: PLC0415 - imports pyarrow

        return Mixture.open(self.artifact.path).manifest

    @property
    def sources(self) -> Table:
        """One row per source: documents and tokens given, epochs, share asked for and given."""
        return Table.of(
            [entry.model_dump(mode="json") for entry in self.manifest.sources], "Sources of a mixture"
        )

    @property
    def _amounts(self) -> str:
        return f"{self.manifest.num_documents:,} documents, {self.manifest.num_tokens:,} tokens"

    def __repr__(self) -> str:
        return f"Mixed({self.artifact.reference!r}, {self._amounts})"

    def _repr_html_(self) -> str:
        columns = ("source", "documents", "tokens", "epochs", "asked for", "given")
        rows = [
            (
                *(each.source, f"{each.drawn_documents:,}", f"{each.drawn_tokens:,}", number(each.epochs)),
                *(f"{each.requested_share:.2%}", f"{each.share:.2%}"),
            )
            for each in self.manifest.sources
        ]
        grid = markup.grid(columns, rows, columns[1:])
        return markup.sheet(f"Mixture {self.artifact.reference}", grid, detail=self._amounts)


class Packed(Made):
    """Packed sequences.

    `len(packed)` of them, `packed[i]` for one, `arrays()` for all, `dataset()` for batches.
    """

    @property
    def path(self) -> Path:
        """The folder of the packed set, which `PackedDataset` and trainers' own readers open."""
        return self.artifact.path

    @cached_property
    def reader(self) -> PackedReader:
        """Random access to sequences, with the origin of each piece (`provenance`)."""
        return PackedReader.open(self.path)

    def arrays(
        self, fields: Sequence[str] = _FIELDS, first: int = 0, stop: int | None = None
    ) -> dict[str, Any]:
        """Return sequences as arrays, for n sequences of L tokens.

        Args:
            fields: those to return:
                `input_ids` uint16 or uint32 [n, L], tokens and padding;
                `cu_seqlens` int32 [m + 1], the bounds of pieces and padding, of all sequences as one row of n
                × L tokens (with `max_seqlen`), for attention over varying lengths;
                `segment_ids` int32 [n, L], the number of each token's piece from 1, 0 on padding;
                `position_ids` int32 [n, L], from 0 in every piece;
                `loss_mask` bool [n, L], false on padding and on the first token of every piece;
                `labels` int64 [n, L], the tokens where `loss_mask` is true, else -100; not shifted;
                `bounds`, a list of int32 [pieces + 1], the bounds of each sequence's pieces.
            first: the first sequence.
            stop: the sequence after the last; by default all.

        Raises:
            UsageError: there are no such sequences.
            LoadingError: there is no such field, there are 2^31 tokens or more and `cu_seqlens` is asked for,
                or the packed set lacks the format memmap.
        """
        last = len(self) if stop is None else stop
        if not 0 <= first < last <= len(self):
            raise UsageError(f"arrays: sequences {first} to {last} are not all there; there are {len(self)}")
        import numpy as np  # noqa: PLC0415

        from tokmill.tasks.loading.batches import Block, Memory, Wanted, check_bounds, made  # noqa: PLC0415
        from tokmill.tasks.loading.rows import PackedRows  # noqa: PLC0415

        manifest, wanted = self.reader.manifest, Wanted(tuple(fields), "stored")  # type: ignore[arg-type]
        check_bounds(wanted, last - first, manifest.sequence_length)
        block = Block(np.arange(first, last, dtype=np.int64), (last - first,))
        (batch,) = made(block, PackedRows(self.path, manifest), wanted, Memory(0))
        return {name: values for name, values in batch.items() if name != "sequence"}

    def dataset(self, **options: Unpack[DatasetOptions]) -> "PackedDataset":
        """Return batches for training; see `PackedDataset` for the options."""
        from tokmill.tasks.loading import PackedDataset  # noqa: PLC0415

        return PackedDataset(self.path, **options)

    def validation(self, *, workers: int | None = None, progress: bool | None = None) -> "Packed":
        """Return the documents that are held out of training, packed alike, each once and unchanged.

        Args:
            workers: see `train`.
            progress: see `run`.

        Raises:
            UsageError: none are held out, or this set was opened, not packed here.
        """
        if self.bench is None or "holdout" not in self.bench.table:
            raise UsageError(
                f"{self.artifact.reference} has no holdout; pass holdout=0.01 to tokmill.train or encode"
            )
        return Packed(self.bench.made("validation", workers=workers, progress=progress), self.bench)

    def save(self, folder: str | Path) -> Path:
        """Copy the packed set, with its record, into a new folder; return it.

        Raises:
            UsageError: the folder exists and is not empty.
        """
        place = Path(folder).expanduser()
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise UsageError(f"save: {place} exists and is not an empty folder; name a new one")
        shutil.copytree(self.path, place, dirs_exist_ok=True)
        return place

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> Any:
        """Return one sequence; see `PackedReader`."""
        return self.reader[index]

    def __repr__(self) -> str:
        figures = self.figures
        return (
            f"Packed({self.artifact.reference!r}, {figures['num_sequences']:,} sequences of "
            f"{figures['sequence_length']:,} tokens, {number(figures['padding_share'] * 100)} % padding)"
        )

    def _repr_html_(self) -> str:
        folder = self.artifact.store.address(self.artifact.ref)
        return figures_of(f"Packed set {self.artifact.reference}", self.figures, folder=folder)


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
        workers: see `train`.
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
    bench = _together(encoded).with_sections(mix=params, name=name)
    return Mixed(bench.made("mixture", workers=workers, progress=progress), bench)


def pack(
    documents: Mixed | EncodedColumns,
    *,
    sequence_length: int,
    into: str | Path | None = None,
    name: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    **options: Unpack[PackOptions],
) -> Packed:
    """Pack documents into sequences of one length, as the pipeline does, and keep their bounds.

        packed = tokmill.pack(mixture, sequence_length=2048, strategy="best_fit")
        packed.arrays()["input_ids"].shape

    Args:
        documents: a mixture; or encoded columns, of which every document then comes once, in a seeded order.
        sequence_length: tokens per sequence, including padding.
        into: a new folder to copy the packed set to; without it, and without a store, it lasts as long as the
            process.
        name: of the artifacts in the store; by default that of the mixture.
        workers: see `train`.
        progress: see `run`.
        **options: parameters of packing: `strategy`, `long_documents`, `window`, `formats`, `pad_id`,
            `shuffle_window`, ….

    Raises:
        UsageError: there is no such parameter, or `into` exists.
        ProfileError: a parameter is invalid.
        RunError: there is not one sequence.
    """
    (params,) = parted("pack", options, PackParams)
    mixed = documents.bench if isinstance(documents, Mixed) else None
    bench = mixed if mixed is not None else _together(documents)  # type: ignore[arg-type]
    bench = bench.with_sections(pack={"sequence_length": sequence_length, **params}, name=name)
    packed = Packed(bench.made("packed", workers=workers, progress=progress), bench)
    if into is not None:
        packed.save(into)
    return packed


def _together(encoded: EncodedColumns) -> Bench:
    """Return the profile whose encoding has these columns, and no others; UsageError if they differ."""
    columns = {encoded.source: encoded} if isinstance(encoded, EncodedColumn) else encoded
    if not isinstance(columns, Mapping) or not columns:
        kind = type(encoded).__name__
        raise UsageError(
            f"mix: of type {kind}: pass what tokmill.encode gives, or that by source, and not empty"
        )
    benches = dict[str, Bench]()
    for source, column in columns.items():
        if not isinstance(column, EncodedColumn):
            kind = type(column).__name__
            raise UsageError(f"mix: encoded[{source!r}] is of type {kind}; pass what tokmill.encode gives")
        if column.bench is None:
            raise UsageError(
                f"mix: {column.artifact.reference} was opened, not encoded here; encode the texts again, "
                "which finds it in the store, or run a profile"
            )
        benches[source] = column.bench
    (name, first), *others = columns.items()
    bench = benches[name]
    whole = all(each.artifact == first.artifact and key == each.source for key, each in columns.items())
    if whole and set(bench.table["sources"]) == set(columns):
        return bench
    for other, column in others:
        for problem, mine, its in (
            ("tokenizers", _tokenizer(first).content_digest, _tokenizer(column).content_digest),
            ("parameters", first.artifact.params, column.artifact.params),
            ("holdouts", bench.table.get("holdout"), benches[other].table.get("holdout")),
            ("stores", bench.store.location, benches[other].store.location),
        ):
            if mine != its:
                raise UsageError(
                    f"mix: {name!r} and {other!r} were encoded with different {problem}; encode them alike"
                )
    table = {
        "name": bench.table["name"],
        "sources": {key: benches[key].table["sources"][each.source] for key, each in columns.items()},
        "tokenizer": {"use": _tokenizer(first).fingerprint},
        "encode": bench.table.get("encode", {}),
    }
    return Bench(bench.store, table).with_sections(holdout=bench.table.get("holdout"))


def _tokenizer(column: EncodedColumn) -> Any:
    (ref,) = column.artifact.record.refs("tokenizer")
    return ref
