"""Write one packed shard: copy tokens to their places once, then write every requested format.

A shard is written in blocks of sequences, so that memory does not grow with it. The encoded shards are
memory-mapped, and one is open at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.packed.block import SequenceBlock, ShardShape, group_rows
from tokmill.tasks.formats.packed.figures import Packing
from tokmill.tasks.formats.packed.layout import PROVENANCE_SCHEMA, PackedFormat, ShardFiles
from tokmill.tasks.formats.packed.plan import PackedShardEntry, PieceTable
from tokmill.tasks.formats.packed.writing import write_pieces, write_sequences
from tokmill.tasks.kernels.tokens import gather
from tokmill.tasks.packing.copies import Body, copies_of
from tokmill.tokenizer.core.stopping import raise_if_stopped

_BLOCK_TOKENS = 1 << 25

ShardPaths = Mapping[tuple[int, int], Path]
"""The directory of each encoded shard, by source and shard index."""


@dataclass(frozen=True)
class Recipe:
    """The settings of writing a shard.

    Attributes:
        packing: the plan's manifest: widths, lengths, boundary tokens.
        formats: formats to write.
        pad_id: id of the padding token.
        labels: see `PackedManifest`.
    """

    packing: Packing
    formats: tuple[PackedFormat, ...]
    pad_id: int
    labels: bool = False


def write_shard(
    recipe: Recipe, entry: PackedShardEntry, pieces: PieceTable, shards: ShardPaths, files: ShardFiles
) -> None:
    """Write one shard in every format, and its table of pieces.

    Args:
        recipe: the settings.
        entry: the sequences of the shard.
        pieces: the pieces of these sequences, in order.
        shards: directories of the encoded shards.
        files: paths to write.

    Raises:
        PackingError: the shard of a piece is missing, a piece lies outside of its document, a document lacks
            a boundary token, or an id is not below `vocab_size`.
    """
    length = recipe.packing.sequence_length
    dtype = np.dtype(recipe.packing.dtype).newbyteorder("<")
    shape = ShardShape(entry.num_sequences, length, dtype, recipe.labels)
    with write_sequences(files, shape, recipe.formats) as append, write_pieces(files) as append_pieces:
        for first, part in _parts(entry, pieces, length):
            raise_if_stopped()
            block, ordinals = filled(recipe, first, part, shards)
            check_vocabulary(block.rows, recipe.packing.vocab_size)
            append(block)
            columns = {**part.columns(), "ordinal": ordinals}
            append_pieces(pa.table(columns, schema=PROVENANCE_SCHEMA))
            written = (first.stop - entry.first_sequence) * length
            report_progress(written, entry.num_sequences * length, "tokens")


def _parts(
    entry: PackedShardEntry, pieces: PieceTable, sequence_length: int
) -> Iterator[tuple[range, PieceTable]]:
    """Yield the shard's sequences in blocks, with their pieces."""
    group = group_rows(sequence_length)
    step = max(1, _BLOCK_TOKENS // (group * sequence_length)) * group
    stop = entry.first_sequence + entry.num_sequences
    for first in range(entry.first_sequence, stop, step):
        sequences = range(first, min(first + step, stop))
        begin, end = np.searchsorted(pieces.sequence, [sequences.start, sequences.stop]).tolist()
        yield sequences, pieces.rows(begin, end)


def filled(
    recipe: Recipe, sequences: range, pieces: PieceTable, shards: ShardPaths
) -> tuple[SequenceBlock, NDArray[np.uint64]]:
    """The tokens of sequences, and the corpus row of each piece's document.

    Raises:
        PackingError: see `write_shard`.
    """
    dtype = np.dtype(recipe.packing.dtype).newbyteorder("<")
    rows = np.full((len(sequences), recipe.packing.sequence_length), recipe.pad_id, dtype=dtype)
    ordinals = np.zeros(len(pieces), dtype=np.uint64)
    row = pieces.sequence.astype(np.int64) - sequences.start
    places = row * recipe.packing.sequence_length + pieces.start
    for key, mine in _by_shard(pieces):
        if key not in shards:
            raise PackingError(
                f"pack: the plan asks for shard {key[1]} of source {key[0]}, which is not encoded; pack the "
                "encoding that was mixed"
            )
        shard = EncodedShard.open(shards[key])
        _copy(
            recipe.packing,
            shard,
            PieceTable(*(values[mine] for values in pieces.columns().values())),
            places[mine],
            rows,
        )
        ordinals[mine] = shard.ordinals[pieces.document[mine].astype(np.int64)]
    block = SequenceBlock(
        rows,
        np.searchsorted(pieces.sequence, sequences.start + np.arange(len(sequences) + 1)),
        pieces.length.astype(np.int64),
        pieces.document_start.astype(np.int64),
    )
    return block, ordinals


def _by_shard(pieces: PieceTable) -> Iterator[tuple[tuple[int, int], NDArray[np.intp]]]:
    """Yield the pieces of each encoded shard, in order."""
    group = pieces.source.astype(np.int64) << 32 | pieces.shard
    order = np.argsort(group, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        yield (int(pieces.source[mine[0]]), int(pieces.shard[mine[0]])), mine


def _copy(
    packing: Packing,
    shard: EncodedShard,
    pieces: PieceTable,
    places: NDArray[np.int64],
    rows: NDArray[Any],
) -> None:
    """Copy the tokens of one encoded shard's pieces to their places."""
    body = Body.of(packing, pieces, shard)
    _check_boundaries(packing, shard, body)
    flat = rows.reshape(-1)
    size = rows.itemsize
    copies = copies_of(packing, body, pieces, places)
    flat[copies.token_places] = copies.token_ids
    gather(
        _bytes(shard.tokens, rows.dtype),
        copies.begins * size,
        copies.lengths * size,
        copies.places * size,
        flat.view(np.uint8),
    )


def _check_boundaries(packing: Packing, shard: EncodedShard, body: Body) -> None:
    """Reject documents that do not begin and end with the packing's boundary tokens."""
    for token_id, chosen, place, word in (
        (packing.begin_of_document_id, body.head, body.begin, "begin"),
        (packing.end_of_document_id, body.tail, body.begin + body.length - 1, "end"),
    ):
        at = place[chosen > 0]
        wrong = at[shard.tokens[at] != token_id] if token_id is not None else at[:0]
        if len(wrong):
            raise PackingError(
                f"pack: a document of the encoded shard {shard.path} does not {word} with token {token_id} "
                f"but with {int(shard.tokens[wrong[0]])}; encode again"
            )


def _bytes(tokens: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
    if tokens.dtype != dtype:
        raise PackingError(f"pack: the shard has {tokens.dtype} tokens, the plan says {dtype}; encode again")
    return np.asarray(tokens).view(np.uint8)


def check_vocabulary(rows: NDArray[Any], vocab_size: int) -> None:
    """Reject token ids that are not in the vocabulary.

    Raises:
        PackingError: an id is `vocab_size` or more.
    """
    largest = int(rows.max(initial=0))
    if largest >= vocab_size:
        raise PackingError(f"pack: token id {largest} must be below vocab_size={vocab_size}; encode again")
