"""Writes one packed shard: tokens go to their places once, then into every format asked for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.errors import PackingError
from tasks.formats.encoded import EncodedShard
from tasks.formats.packed_files import PROVENANCE_SCHEMA, SEQUENCE_SCHEMA, PackedFormat, ShardFiles
from tasks.formats.packing_plan import PieceTable
from tasks.kernels.gather import gather

_ROW_GROUP_TOKENS = 1 << 20


class Block:
    """The sequences of one shard in memory, and the provenance of their pieces.

    Attributes:
        rows: uint16 | uint32 [n, L], the tokens, padded.
        ordinals: uint64 [p], the corpus row of each piece's document.
        firsts: int64 [n + 1], where each sequence's pieces begin.
    """

    def __init__(self, pieces: PieceTable, shape: tuple[int, int], dtype: str, pad_id: int) -> None:
        first_sequence = int(pieces.sequence[0])
        self.pieces = pieces
        self.rows = np.full(shape, pad_id, dtype=np.dtype(dtype).newbyteorder("<"))
        self.ordinals = np.zeros(len(pieces), dtype=np.uint64)
        self.firsts = np.searchsorted(pieces.sequence, first_sequence + np.arange(shape[0] + 1))
        row = pieces.sequence.astype(np.int64) - first_sequence
        self._places = row * shape[1] + pieces.start

    def fill(self, shards: Mapping[tuple[int, int], Path]) -> None:
        """Copy every piece to its place.

        Args:
            shards: the directory of each encoded shard, by source and shard index.

        Raises:
            PackingError: a piece is of a shard that is not there, or lies outside of its document.
        """
        group = self.pieces.source.astype(np.int64) << 32 | self.pieces.shard
        order = np.argsort(group, kind="stable")
        cuts = np.flatnonzero(np.diff(group[order])) + 1
        for rows in np.split(order, cuts):
            key = int(self.pieces.source[rows[0]]), int(self.pieces.shard[rows[0]])
            if key not in shards:
                raise PackingError(
                    f"pack: the plan asks for shard {key[1]} of source {key[0]}, which is not encoded; "
                    "pack the encoding that was mixed"
                )
            self._fill_from(EncodedShard.open(shards[key]), rows)

    def _fill_from(self, shard: EncodedShard, rows: NDArray[np.intp]) -> None:
        document = self.pieces.document[rows].astype(np.int64)
        start = self.pieces.document_start[rows].astype(np.int64)
        length = self.pieces.length[rows].astype(np.int64)
        _check_within(shard, document, start + length)
        size = self.rows.itemsize
        begins = shard.offsets[document] + start
        data, out = _bytes(shard.tokens, self.rows.dtype), self.rows.reshape(-1).view(np.uint8)
        gather(data, begins * size, length * size, self._places[rows] * size, out)
        self.ordinals[rows] = shard.ordinals[document]


def _check_within(shard: EncodedShard, document: NDArray[np.int64], stop: NDArray[np.int64]) -> None:
    """Raise unless every document is in the shard and has at least `stop` tokens."""
    there = document < shard.num_documents
    found = np.where(there, document, 0)
    lengths = np.diff(shard.offsets)[found] if shard.num_documents else np.zeros(len(found))
    wrong = np.flatnonzero(~there | (stop > lengths))
    if len(wrong):
        raise PackingError(
            f"pack: the plan asks for {int(stop[wrong[0]])} tokens of document {int(document[wrong[0]])}, "
            f"which the encoded shard {shard.path} does not have; mix and pack the encoding that the plan "
            "was made of"
        )


def _bytes(tokens: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
    if tokens.dtype != dtype:
        raise PackingError(f"pack: the shard has {tokens.dtype} tokens, the plan says {dtype}; encode again")
    return np.asarray(tokens).view(np.uint8)


def check_vocabulary(rows: NDArray[Any], vocab_size: int) -> None:
    """Refuse token ids that the vocabulary does not have.

    Raises:
        PackingError: an id is `vocab_size` or more.
    """
    largest = int(rows.max(initial=0))
    if largest >= vocab_size:
        raise PackingError(f"pack: token id {largest} must be below vocab_size={vocab_size}; encode again")


def write_block(block: Block, files: ShardFiles, formats: tuple[PackedFormat, ...]) -> None:
    """Write a filled block in each of `formats`, and its provenance; the same block gives the same bytes."""
    if "memmap" in formats:
        _write_memmap(block, files)
    if "parquet" in formats:
        _write_parquet(block, files)
    columns = {**block.pieces.columns(), "ordinal": block.ordinals}
    pq.write_table(pa.table(columns, schema=PROVENANCE_SCHEMA), files.pieces, compression="zstd")


def _write_memmap(block: Block, files: ShardFiles) -> None:
    block.rows.tofile(files.tokens)
    num_pieces = np.diff(block.firsts)
    offsets = np.concatenate([[0], np.cumsum(num_pieces + 1)])
    flat = np.zeros(int(offsets[-1]), dtype=np.int32)
    ends = (block.pieces.start + block.pieces.length).astype(np.int32)
    # Each sequence's boundaries are a 0, then the ends of its pieces.
    flat[np.arange(len(ends)) + np.repeat(np.arange(1, len(num_pieces) + 1), num_pieces)] = ends
    np.save(files.cu_seqlens, flat)
    np.save(files.cu_offsets, offsets.astype(np.int64))


def _write_parquet(block: Block, files: ShardFiles) -> None:
    num_rows, length = block.rows.shape
    step = max(1, _ROW_GROUP_TOKENS // length)
    # Positions and boundaries count up, so differences pack best; a dictionary is no use for tokens.
    deltas = [f"{name}.list.element" for name in ("position_ids", "segment_ids", "seq_lengths")]
    with pq.ParquetWriter(
        files.parquet,
        SEQUENCE_SCHEMA,
        compression="zstd",
        use_dictionary=False,
        column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
    ) as writer:
        for row in range(0, num_rows, step):
            table = _sequence_table(block, row, min(row + step, num_rows))
            writer.write_table(table, row_group_size=step)


def _sequence_table(block: Block, start: int, stop: int) -> pa.Table:
    """Rows [start, stop) of the Parquet format."""
    num_rows, length = stop - start, block.rows.shape[1]
    firsts = block.firsts[start : stop + 1] - block.firsts[start]
    pieces = block.pieces.rows(int(block.firsts[start]), int(block.firsts[stop]))
    lengths = pieces.length.astype(np.int64)
    row = np.repeat(np.arange(num_rows), np.diff(firsts))
    nth = np.arange(len(pieces)) - firsts[row]
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(row * length + pieces.start, lengths) + within
    segments = np.zeros(num_rows * length, dtype=np.int32)
    positions = np.zeros(num_rows * length, dtype=np.int32)
    segments[places] = np.repeat(nth + 1, lengths)
    positions[places] = within
    even = np.arange(num_rows + 1) * length
    columns = [
        _lists(even, block.rows[start:stop].reshape(-1)),
        _lists(even, positions),
        _lists(even, segments),
        _lists(firsts, lengths),
    ]
    return pa.Table.from_arrays(columns, schema=SEQUENCE_SCHEMA)


def _lists(offsets: NDArray[np.int64], values: NDArray[Any]) -> pa.ListArray:
    flat = pa.array(values.astype(np.int32))
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), flat, type=SEQUENCE_SCHEMA.field(0).type
    )
