"""Takedown: write a new version of a packed artifact without some documents.

Their pieces are taken out of their sequences; the rest moves together, and padding fills up. Every sequence
keeps its number, so a training run can continue at its position. Shards without such pieces are linked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Scalar, Stage, Unit
from tokmill.tasks.formats.packed.manifest import (
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
from tokmill.tasks.store.record import read_record
from tokmill.tasks.takedown.exclude import TakedownParams
from tokmill.tasks.tracing.places import DocumentSet, places_of

Columns = dict[str, NDArray[Any]]


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
