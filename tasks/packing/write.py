"""Write one packed shard: copy tokens to their places once, then write every requested format.

A shard is written in blocks of sequences, so that memory does not grow with it. The encoded shards are
memory-mapped, and one is open at a time.

Plan the copying of pieces: runs of an encoded shard's tokens, and tokens to add between them.

A piece in the order of its document is one run. A rearranged piece (`tasks.fim.tokens`) has up to five: the
token that begins the document, two or three parts of its text, and the token that ends it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.fim.tokens import FIM_TOKENS, SPM, DocumentKeys, choose_cuts
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.packed.manifest import FimTokens, PackedFormat, PackedShardEntry, Packing
from tokmill.tasks.formats.packed.pieces import PROVENANCE_SCHEMA, PieceTable, write_pieces
from tokmill.tasks.formats.packed.shard_format import SequenceBlock, ShardShape, block_ranges, write_sequences
from tokmill.tasks.kernels.documents import gather
from tokmill.tokenizer.core.stopping import raise_if_stopped

_BLOCK_TOKENS = 1 << 25

ShardPaths = Mapping[tuple[int, int], Path]
"""The directory of each encoded shard, by source and shard index."""


@dataclass(frozen=True)
class Recipe:
    """The settings of writing a shard."""

    packing: Packing  # the plan's manifest: widths, lengths, boundary tokens
    formats: tuple[PackedFormat, ...]  # formats to write
    pad_id: int  # id of the padding token
    labels: bool = False  # see `PackedManifest`


def write_shard(
    recipe: Recipe, entry: PackedShardEntry, pieces: PieceTable, shards: ShardPaths, out: Path
) -> None:
    """Write one shard in every format, and its table of pieces."""
    length = recipe.packing.sequence_length
    dtype = np.dtype(recipe.packing.dtype).newbyteorder("<")
    shape = ShardShape(entry.num_sequences, length, dtype, recipe.labels)
    with (
        write_sequences(out, entry.index, shape, recipe.formats) as append,
        write_pieces(out, entry.index) as append_pieces,
    ):
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
    for rows in block_ranges(entry.num_sequences, sequence_length, _BLOCK_TOKENS):
        sequences = entry.sequences[rows.start : rows.stop]
        begin, end = np.searchsorted(pieces.sequence, [sequences.start, sequences.stop]).tolist()
        yield sequences, pieces.rows(begin, end)


def filled(
    recipe: Recipe, sequences: range, pieces: PieceTable, shards: ShardPaths
) -> tuple[SequenceBlock, NDArray[np.uint64]]:
    """The tokens of sequences, and the corpus row of each piece's document."""
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


@dataclass(frozen=True)
class Body:
    """The places of pieces in the encoded shard; all arrays int64 [p]."""

    begin: NDArray[np.int64]  # index of the piece's first token
    length: NDArray[np.int64]  # number of its tokens
    head: NDArray[np.int64]  # 1 where the piece begins with the token that begins the document, else 0
    tail: NDArray[np.int64]  # 1 where the piece ends with the token that ends the document, else 0

    @classmethod
    def of(cls, packing: Packing, pieces: PieceTable, shard: EncodedShard) -> Self:
        """Locate the pieces of one shard."""
        document = pieces.document.astype(np.int64)
        start = pieces.document_start.astype(np.int64)
        length = pieces.length.astype(np.int64) - FIM_TOKENS * (pieces.fim > 0)
        there = document < shard.num_documents
        found = np.where(there, document, 0)
        lengths = np.diff(shard.offsets)[found] if shard.num_documents else np.zeros_like(start)
        wrong = np.flatnonzero(~there | (start + length > lengths))
        if len(wrong):
            raise PackingError(
                f"pack: the plan uses {int((start + length)[wrong[0]])} tokens of document "
                f"{int(document[wrong[0]])}, which the encoded shard {shard.path} does not have; mix and "
                "pack the encoding that the plan was made from"
            )
        head = (start == 0) & (packing.begin_of_document_id is not None)
        tail = (start + length == lengths) & (packing.end_of_document_id is not None)
        return cls(shard.offsets[document] + start, length, head.astype(np.int64), tail.astype(np.int64))


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
    """Reject token ids that are not in the vocabulary."""
    largest = int(rows.max(initial=0))
    if largest >= vocab_size:
        raise PackingError(f"pack: token id {largest} must be below vocab_size={vocab_size}; encode again")


@dataclass(frozen=True)
class Copies:
    """Runs of tokens to copy, int64 [c], and single tokens to add, int64 [t]."""

    begins: NDArray[np.int64]  # index in the encoded shard at which each run begins
    lengths: NDArray[np.int64]  # tokens of each run; may be 0
    places: NDArray[np.int64]  # destination of each run
    token_places: NDArray[np.int64]  # destination of each added token
    token_ids: NDArray[np.int64]  # id of each added token


def copies_of(packing: Packing, body: Body, pieces: PieceTable, places: NDArray[np.int64]) -> Copies:
    """The runs and tokens for these pieces, whose destinations are `places`, int64 [p]."""
    rearranged = np.flatnonzero(pieces.fim)
    if packing.fim is None or not len(rearranged):
        nothing = np.empty(0, dtype=np.int64)
        return Copies(body.begin, body.length, places, nothing, nothing)
    plain = np.flatnonzero(pieces.fim == 0)
    moved = _rearranged(packing.fim, body, pieces, places, rearranged)
    return Copies(
        np.concatenate([body.begin[plain], moved.begins]),
        np.concatenate([body.length[plain], moved.lengths]),
        np.concatenate([places[plain], moved.places]),
        moved.token_places,
        moved.token_ids,
    )


def _rearranged(
    fim: FimTokens, body: Body, pieces: PieceTable, places: NDArray[np.int64], chosen: NDArray[np.intp]
) -> Copies:
    """The runs and tokens of the pieces `chosen`, in the order that `tasks.fim.tokens` defines."""
    head, tail = body.head[chosen], body.tail[chosen]
    begin = body.begin[chosen] + head
    text = body.length[chosen] - head - tail
    keys = DocumentKeys(*(getattr(pieces, name)[chosen] for name in ("source", "shard", "document", "epoch")))
    a, b = choose_cuts(keys, pieces.document_start[chosen], text, fim.seed)
    spm = pieces.fim[chosen] == SPM
    place = places[chosen] + head
    prefix_place = np.where(spm, place + 3 + text - b, place + 1)
    suffix_place = np.where(spm, place + 2, place + 2 + a)
    middle_place = np.where(spm, prefix_place + a, place + 3 + a + text - b)
    runs = [
        (begin - head, head, places[chosen]),
        (begin, a, prefix_place),
        (begin + b, text - b, suffix_place),
        (begin + a, b - a, middle_place),
        (begin + text, tail, place + 3 + text),
    ]
    begins, lengths, goals = (np.concatenate(column) for column in zip(*runs, strict=True))
    middle_token = np.where(spm, prefix_place - 1, middle_place - 1)
    token_places = np.concatenate([place, suffix_place - 1, middle_token])
    token_ids = np.repeat([fim.prefix_id, fim.suffix_id, fim.middle_id], len(chosen))
    return Copies(begins, lengths, goals, token_places, token_ids)
