"""Takedown: write a new version of a packed artifact without some documents.

Their pieces are taken out of their sequences; the rest moves together, and padding fills up. Every sequence
keeps its number, and shards without such pieces are the same files, so a training run can continue at its
position. Law: per source, tokens before = tokens here + taken down; padding grows by the tokens taken down.
"""

from collections.abc import Mapping, Sequence
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
    block_ranges,
    open_shard,
    shard_files,
    write_folder_files,
    write_sequences,
)
from tokmill.tasks.kernels.documents import gather
from tokmill.tasks.packing.write import link
from tokmill.tasks.store.record import read_record
from tokmill.tasks.takedown.exclude import TakedownParams
from tokmill.tasks.tracing.places import DocumentSet, places_of

_BLOCK_TOKENS = 1 << 24

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
        _write(path, manifest, entry, _Pieces(pieces, ~chosen), out)
    else:
        for file in shard_files(path, entry.index, manifest):
            link(file, out / file.relative_to(path))
    made = entry.model_copy(update={"num_tokens": int(kept["length"].sum())})
    counts = (count_by_source(each, len(manifest.sources)) for each in (taken, kept))
    return TakenDownShard(made, taken, *counts)


class _Pieces:
    """The kept pieces of a shard, with their old and new places.

    Attributes:
        firsts: int64 [n + 1]; the pieces of the shard's sequence i are [firsts[i], firsts[i + 1]).
        columns: the columns of the pieces; `start` is the new place.
        starts: int64 [p], the old places.
    """

    def __init__(self, pieces: PieceRows, keep: NDArray[np.bool_]) -> None:
        columns = {name: values[keep] for name, values in pieces.columns.items()}
        self.firsts = np.concatenate([[0], np.cumsum(keep)])[pieces.firsts]
        self.starts = columns["start"].astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(columns["length"], dtype=np.int64)])
        begins = np.repeat(ends[self.firsts[:-1]], np.diff(self.firsts))
        self.columns = columns | {"start": (ends[:-1] - begins).astype(np.uint32)}


def _write(path: Path, manifest: PackedManifest, entry: PackedShardEntry, pieces: _Pieces, out: Path) -> None:
    shape = ShardShape(entry.num_sequences, manifest.sequence_length, manifest.token_dtype, manifest.labels)
    reader = open_shard(path, entry.index, manifest)
    with (
        write_sequences(out, entry.index, shape, manifest.formats) as append,
        write_pieces(out, entry.index) as append_pieces,
    ):
        for rows in block_ranges(entry.num_sequences, manifest.sequence_length, _BLOCK_TOKENS):
            before = np.stack([reader.tokens(row) for row in rows])
            firsts = pieces.firsts[rows.start : rows.stop + 1]
            its = slice(int(firsts[0]), int(firsts[-1]))
            append(_moved(before, pieces, its, firsts - firsts[0], manifest))
            columns = {name: pieces.columns[name][its] for name in PROVENANCE_SCHEMA.names}
            append_pieces(pa.table(columns, schema=PROVENANCE_SCHEMA))


def _moved(
    before: NDArray[Any], pieces: _Pieces, its: slice, firsts: NDArray[np.int64], manifest: PackedManifest
) -> SequenceBlock:
    """The sequences with the kept pieces moved together, and padding after them."""
    rows = np.full_like(before, manifest.pad_id)
    lengths = pieces.columns["length"][its].astype(np.int64)
    size, width = before.itemsize, before.shape[1]
    base = np.repeat(np.arange(len(before)) * width, np.diff(firsts))
    gather(
        before.reshape(-1).view(np.uint8),
        (base + pieces.starts[its]) * size,
        lengths * size,
        (base + pieces.columns["start"][its]) * size,
        rows.reshape(-1).view(np.uint8),
    )
    starts = pieces.columns["document_start"][its].astype(np.int64)
    return SequenceBlock(rows, firsts, lengths, starts)


def run(
    params: TakedownParams, *, out: Path, packed: Path, documents: Sequence[Mapping[str, Any]]
) -> Outcome:
    """Write the packed artifact in `packed` without `documents`.

    Args:
        params: the reason, which changes no file.
        out: the new artifact's directory.
        packed: the directory of the old version.
        documents: the fields of one `TakenDocument` each, in any order.

    Raises:
        StoreError: a file of the old artifact is missing or broken.
    """
    manifest = PackedManifest.open(packed)
    taken = in_order(documents)
    wanted = DocumentSet(manifest.sources, places_of(taken))
    shards = [take_down_shard(packed, manifest, entry, wanted, out) for entry in manifest.shards]
    made = _manifest(manifest, shards)
    write_folder_files(out, made)
    pieces = {name: np.concatenate([shard.pieces[name] for shard in shards]) for name in shards[0].pieces}
    pq.write_table(
        pa.table(pieces).select(TAKEN_DOWN_SCHEMA.names).cast(TAKEN_DOWN_SCHEMA), out / TAKEN_DOWN_FILE
    )
    takedown = _takedown(packed, taken, pieces)
    takedown.save(out)
    return Outcome(metrics=_metrics(made, shards, takedown), accounts=_accounts(manifest, made, shards))


def _manifest(manifest: PackedManifest, shards: Sequence[TakenDownShard]) -> PackedManifest:
    num_tokens = sum(shard.entry.num_tokens for shard in shards)
    figures = {
        "num_tokens": num_tokens,
        "num_padding_tokens": manifest.num_sequences * manifest.sequence_length - num_tokens,
        "shards": tuple(shard.entry for shard in shards),
        "origin": None,  # its sequences no longer equal those of the artifact that it was exported from
        "predecessors": tuple(sorted({*manifest.predecessors, *filter(None, [manifest.origin])})),
    }
    return manifest.model_copy(update=figures)


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
