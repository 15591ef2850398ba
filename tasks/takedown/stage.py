"""Takedown and exclude: packed sequences, or a mixture to be packed again, without some documents.

Of packed sequences the pieces are taken out, the rest moves together, and padding fills up, so that every
sequence keeps its number. Of a mixture all other rows keep their order, and nothing is drawn instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Params, Scalar, Stage, Unit
from tokmill.tasks.formats.encoded import Encoded
from tokmill.tasks.formats.mixture import MixedSource, Mixture, MixtureManifest, Plan, ShareTable, write_plan
from tokmill.tasks.formats.packed.manifest import (
    ExcludedDocuments,
    PackedManifest,
    PackedShardEntry,
    TakedownManifest,
    TakenDocument,
    in_order,
)
from tokmill.tasks.formats.packed.pieces import (
    PROVENANCE_SCHEMA,
    TAKEN_DOWN_FILE,
    TAKEN_DOWN_SCHEMA,
    PieceRows,
    write_pieces,
)
from tokmill.tasks.formats.packed.shard_format import (
    SequenceBlock,
    ShardShape,
    shard_files,
    write_folder_files,
    write_sequences,
)
from tokmill.tasks.kernels.documents import gather
from tokmill.tasks.packing.export import blocks_of
from tokmill.tasks.packing.write import link, of_shards
from tokmill.tasks.store import NOT_IN_FINGERPRINT
from tokmill.tasks.store.record import MOST_REASON_CHARS, read_record
from tokmill.tasks.tracing.places import DocumentSet, places_in_encoded, places_of

Columns = dict[str, NDArray[Any]]


class TakedownParams(Params):
    """Of both ways of a takedown; the documents are an input, and so no parameter."""

    reason: str = Field(
        default="",
        max_length=MOST_REASON_CHARS,
        description="Why they are taken down, for the record; of the same request it is the first one's.",
        json_schema_extra=NOT_IN_FINGERPRINT,
    )


class TakenDownShard(NamedTuple):
    """A shard without the documents' pieces."""

    entry: PackedShardEntry  # in the new manifest
    pieces: Columns  # those that were taken down, as they were: the columns of `pieces-*.parquet`
    taken: NDArray[np.int64]  # documents and tokens of these, int64 [sources, 2]; see `count_by_source`
    kept: NDArray[np.int64]  # the same for the remaining pieces


def count_by_source(pieces: Columns, num_sources: int) -> NDArray[np.int64]:
    """Documents and tokens of pieces, by source: int64 [sources, 2].

    A document counts once per epoch, at the piece that holds its beginning; packing keeps the beginning of
    every document of which it keeps anything.
    """
    begun = pieces["source"][pieces["document_start"] == 0]
    tokens = np.bincount(pieces["source"], weights=pieces["length"], minlength=num_sources)
    return np.stack([np.bincount(begun, minlength=num_sources), tokens.astype(np.int64)], axis=1)


def take_down_shard(
    path: Path, manifest: PackedManifest, entry: PackedShardEntry, wanted: DocumentSet, out: Path
) -> TakenDownShard:
    """Write a shard of the artifact in `path` without the pieces of the `wanted` documents."""
    pieces = PieceRows.open(path, entry.index, manifest)
    chosen = wanted.among_pieces(pieces)
    taken, kept = (
        {name: values[rows] for name, values in pieces.columns.items()} for rows in (chosen, ~chosen)
    )
    if chosen.any():
        firsts = np.concatenate([[0], np.cumsum(~chosen)])[pieces.firsts]
        _write(path, manifest, entry, kept, firsts, out)
    else:
        for file in shard_files(path, entry.index, manifest):
            link(file, out / file.relative_to(path))
    made = entry.model_copy(update={"num_tokens": int(kept["length"].sum())})
    counts = (count_by_source(each, len(manifest.sources)) for each in (taken, kept))
    return TakenDownShard(made, taken, *counts)


def _write(
    path: Path,
    manifest: PackedManifest,
    entry: PackedShardEntry,
    kept: Columns,
    firsts: NDArray[np.int64],
    out: Path,
) -> None:
    """Write the kept pieces moved together; sequence i has the pieces [firsts[i], firsts[i + 1])."""
    shape = ShardShape(entry.num_sequences, manifest.sequence_length, manifest.token_dtype, manifest.labels)
    ends = np.concatenate([[0], np.cumsum(kept["length"], dtype=np.int64)])
    begins = np.repeat(ends[firsts[:-1]], np.diff(firsts))
    moved = kept | {"start": (ends[:-1] - begins).astype(np.uint32)}
    with (
        write_sequences(out, entry.index, shape, manifest.formats) as append,
        write_pieces(out, entry.index) as append_pieces,
    ):
        for its, block in blocks_of(path, entry, manifest, kept, firsts):
            places = (kept["start"][its].astype(np.int64), moved["start"][its].astype(np.int64))
            append(_moved(block, *places, manifest.pad_id))
            columns = {name: moved[name][its] for name in PROVENANCE_SCHEMA.names}
            append_pieces(pa.table(columns, schema=PROVENANCE_SCHEMA))


def _moved(
    block: SequenceBlock, starts: NDArray[np.int64], places: NDArray[np.int64], pad_id: int
) -> SequenceBlock:
    """The sequences with the pieces at `starts` moved to their `places`, and padding elsewhere."""
    rows = np.full_like(block.rows, pad_id)
    size, width = rows.itemsize, rows.shape[1]
    base = np.repeat(np.arange(len(rows)) * width, np.diff(block.firsts))
    before, after = (tokens.reshape(-1).view(np.uint8) for tokens in (block.rows, rows))
    gather(before, (base + starts) * size, block.lengths * size, (base + places) * size, after)
    return replace(block, rows=rows)


def run(
    params: TakedownParams, *, out: Path, packed: Path, documents: Sequence[Mapping[str, Any]]
) -> Outcome:
    """Write the packed artifact without `documents`, the fields of a `TakenDocument` each, in any order."""
    manifest = PackedManifest.open(packed)
    taken = in_order(documents)
    wanted = DocumentSet(manifest.sources, places_of(taken))
    shards = [take_down_shard(packed, manifest, entry, wanted, out) for entry in manifest.shards]
    # its sequences no longer equal those of the artifact that it was exported from
    predecessors = tuple(sorted({*manifest.predecessors, *filter(None, [manifest.origin])}))
    entries = [shard.entry for shard in shards]
    made = of_shards(manifest, entries, origin=None, predecessors=predecessors)
    write_folder_files(out, made)
    pieces = {name: np.concatenate([shard.pieces[name] for shard in shards]) for name in shards[0].pieces}
    pq.write_table(
        pa.table(pieces).select(TAKEN_DOWN_SCHEMA.names).cast(TAKEN_DOWN_SCHEMA), out / TAKEN_DOWN_FILE
    )
    takedown = _takedown(packed, taken, pieces)
    takedown.save(out)
    return Outcome(metrics=_metrics(made, shards, takedown), accounts=_accounts(manifest, made, shards))


def _takedown(packed: Path, taken: Sequence[TakenDocument], pieces: Columns) -> TakedownManifest:
    digest, before = read_record(packed).content_digest, TakedownManifest.found(packed)
    return TakedownManifest(
        previous=digest,
        predecessors=(*(before.predecessors if before else ()), digest),
        documents=tuple(taken),
        changed_sequences=tuple(np.unique(pieces["sequence"]).tolist()),
    )


def _metrics(
    made: PackedManifest, shards: Sequence[TakenDownShard], takedown: TakedownManifest
) -> dict[str, Scalar]:
    return {
        "sequence_length": made.sequence_length,
        "num_sequences": made.num_sequences,
        "num_tokens": made.num_tokens,
        "num_padding_tokens": made.num_padding_tokens,
        "padding_share": round(made.num_padding_tokens / (made.num_sequences * made.sequence_length), 12),
        "num_shards": len(shards),
        "num_changed_shards": sum(len(shard.pieces["length"]) > 0 for shard in shards),
        "num_changed_sequences": len(takedown.changed_sequences),
        "num_taken_down_pieces": sum(len(shard.pieces["length"]) for shard in shards),
        "num_taken_down_tokens": sum(int(shard.taken[:, 1].sum()) for shard in shards),
    }


def _accounts(
    before: PackedManifest, after: PackedManifest, shards: Sequence[TakenDownShard]
) -> list[Account]:
    """The accounts of each source, in documents (once per epoch) and tokens; and one of all tokens.

    The last one starts from the old manifest's number of tokens, not from the tokens that were read.
    """
    kept, taken = (sum(getattr(shard, name) for shard in shards) for name in ("kept", "taken"))
    units: tuple[Unit, Unit] = ("documents", "tokens")
    accounts = [
        Account(
            source=source,
            unit=unit,
            num_in=int(kept[index, column] + taken[index, column]),
            became={"packed": int(kept[index, column]), "taken_down": int(taken[index, column])},
        )
        for index, source in enumerate(before.sources)
        for column, unit in enumerate(units)
    ]
    lost = int(taken[:, 1].sum())
    num_in, added = before.num_tokens + before.num_padding_tokens, {"padding": lost}
    became = {
        "packed": after.num_tokens,
        "padding": before.num_padding_tokens + lost,
        "taken_down": lost,
    }
    return [*accounts, Account(source=NO_SOURCE, unit="tokens", num_in=num_in, added=added, became=became)]


TAKEDOWN = Stage(verb="takedown", task="takedown", kind="packed", version=3, params=TakedownParams, run=run)


def run_exclude(
    params: TakedownParams,
    *,
    out: Path,
    mixture: Path,
    encoded: Path,
    shards: Sequence[Path],
    documents: Sequence[Mapping[str, Any]],
) -> Outcome:
    """Write the mixture without `documents`, the fields of a `TakenDocument` each, in any order."""
    before = Mixture.open(mixture)
    taken = ExcludedDocuments(documents=in_order(documents))
    places = places_in_encoded(Encoded.open(encoded), shards, places_of(taken.documents))
    left_out = DocumentSet(before.sources, places)
    exclusion = _Exclusion(before)
    with write_plan(out) as append:
        for plan in before.batches():
            excluded = left_out.among(plan.source, plan.shard, plan.document)
            exclusion.add(plan, excluded)
            append(Plan(**{name: values[~excluded] for name, values in plan.columns().items()}))
    made = exclusion.manifest()
    if not made.num_documents:
        raise MixingError("exclude: no document of the mixture is left; delete the packed artifact instead")
    made.save(out)
    exclusion.shares().save(out)
    taken.save(out)
    metrics: dict[str, Scalar] = {
        "num_documents": made.num_documents,
        "num_tokens": made.num_tokens,
        "limited_by": "",
    }
    return Outcome(metrics=metrics, accounts=exclusion.accounts())


class _Exclusion:
    """Counts the excluded documents and tokens, by source and by point of the table of shares."""

    def __init__(self, mixture: Mixture) -> None:
        self._mixture = mixture.manifest
        self._table = mixture.shares()
        size = len(mixture.sources)
        # documents and tokens; and the same for first draws only
        self._excluded = np.zeros((4, size), dtype=np.int64)
        # excluded tokens before each point of the table
        self._before = np.zeros((len(self._table.positions) + 1, size))
        self._position = mixture.manifest.first_position
        self._starts = np.array(mixture.manifest.first_document_starts, dtype=np.int64)
        self._starts_left: list[int] = []

    def add(self, plan: Plan, excluded: NDArray[np.bool_]) -> None:
        """Count the next rows; `excluded` marks those to leave out."""
        starts, self._starts = self._starts[: len(plan)], self._starts[len(plan) :]
        self._starts_left += starts[~excluded[: len(starts)]].tolist()
        lengths = plan.num_tokens.astype(np.int64)
        positions = self._position + np.cumsum(lengths) - lengths
        self._position += int(lengths.sum())
        source, tokens = plan.source[excluded], lengths[excluded]
        for row, chosen in ((0, np.ones(len(source), dtype=np.bool_)), (2, plan.epoch[excluded] == 0)):
            np.add.at(self._excluded[row], source[chosen], 1)
            np.add.at(self._excluded[row + 1], source[chosen], tokens[chosen])
        points = np.searchsorted(self._table.positions, positions[excluded], side="right")
        np.add.at(self._before, (points, source), tokens)

    def manifest(self) -> MixtureManifest:
        """The manifest of the remaining mixture."""
        left = self._mixture.num_tokens - int(self._excluded[1].sum())
        table = self.shares()
        sources = [self._source(k, left, table) for k in range(len(self._mixture.sources))]
        figures = {
            "num_documents": self._mixture.num_documents - int(self._excluded[0].sum()),
            "num_tokens": left,
            "first_document_starts": tuple(self._starts_left),
            "sources": sources,
        }
        return self._mixture.model_copy(update=figures)

    def _source(self, index: int, num_tokens: int, table: ShareTable) -> MixedSource:
        was, excluded = self._mixture.sources[index], self._excluded[:, index].tolist()
        drawn = was.drawn_tokens - excluded[1]
        ahead = table.given[:, index] - table.requested[:, index]
        figures = {
            "share": round(drawn / max(1, num_tokens), 12),
            "drawn_documents": was.drawn_documents - excluded[0],
            "drawn_tokens": drawn,
            "unique_documents": was.unique_documents - excluded[2],
            "unique_tokens": was.unique_tokens - excluded[3],
            "epochs": round(drawn / max(1, was.num_tokens), 12),
            "most_ahead_tokens": float(np.round(np.max(ahead, initial=0.0), 6)),
            "most_behind_tokens": float(np.round(np.max(-ahead, initial=0.0), 6)),
        }
        return was.model_copy(update=figures)

    def shares(self) -> ShareTable:
        """The table of shares at the same points of the plan, over the remaining tokens."""
        excluded = np.cumsum(self._before, axis=0)[:-1]
        positions = self._table.positions - excluded.sum(axis=1)
        scale = positions / np.maximum(self._table.positions, 1)
        return ShareTable(positions, self._table.requested * scale[:, None], self._table.given - excluded)

    def accounts(self) -> list[Account]:
        """The accounts of each source, in documents (once per draw) and tokens."""
        units: tuple[tuple[int, Unit], ...] = ((0, "documents"), (1, "tokens"))
        return [
            Account(
                source=source.source,
                unit=unit,
                num_in=(drawn := getattr(source, f"drawn_{unit}")),
                became={"kept": drawn - (gone := int(self._excluded[row, index])), "taken_down": gone},
            )
            for index, source in enumerate(self._mixture.sources)
            for row, unit in units
        ]


EXCLUDE = Stage(
    verb="exclude", task="takedown", kind="mixture", version=2, params=TakedownParams, run=run_exclude
)
