"""Write one packed shard: copy tokens to their places once, then write every requested format.

A piece in the order of its document is one run of tokens. A rearranged one has up to five: the token that
begins the document, parts of its text, and the one that ends it.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.fim.rearrangement import FIM_TOKENS, DocumentKeys, choose_cuts, form_places
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.packed.manifest import FimTokens, PackedManifest, PackedShardEntry
from tokmill.tasks.formats.packed.pieces import PROVENANCE_SCHEMA, PieceTable, write_pieces
from tokmill.tasks.formats.packed.shard_format import (
    SequenceBlock,
    ShardShape,
    block_ranges,
    shard_files,
    write_folder_files,
    write_sequences,
)
from tokmill.tasks.kernels.documents import gather
from tokmill.tokenizer.core.stopping import raise_if_stopped

_BLOCK_TOKENS = 1 << 25

_Runs: TypeAlias = list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]
"""Index in the encoded shard, tokens and destination of runs of tokens to copy."""


def write_shard(
    manifest: PackedManifest, pieces: PieceTable, shards: Mapping[tuple[int, int], Path], out: Path
) -> None:
    """Write the only shard of a manifest in every format, and its table of pieces.

    `shards` are the directories of the encoded shards, by source and index.
    """
    (entry,), length = manifest.shards, manifest.sequence_length
    shape = ShardShape(entry.num_sequences, length, manifest.token_dtype, manifest.labels)
    with (
        write_sequences(out, entry.index, shape, manifest.formats) as append,
        write_pieces(out, entry.index) as append_pieces,
    ):
        for rows in block_ranges(entry.num_sequences, length, _BLOCK_TOKENS):
            raise_if_stopped()
            sequences = entry.sequences[rows.start : rows.stop]
            begin, end = np.searchsorted(pieces.sequence, [sequences.start, sequences.stop]).tolist()
            part = pieces.rows(begin, end)
            block, ordinals = _filled(manifest, sequences, part, shards)
            largest = int(block.rows.max(initial=0))
            if largest >= manifest.vocab_size:
                raise PackingError(
                    f"pack: token id {largest} must be below vocab_size={manifest.vocab_size}; encode again"
                )
            append(block)
            columns = {**part.columns(), "ordinal": ordinals}
            append_pieces(pa.table(columns, schema=PROVENANCE_SCHEMA))
            report_progress(rows.stop * length, entry.num_sequences * length, "tokens")


def _filled(
    manifest: PackedManifest, sequences: range, pieces: PieceTable, shards: Mapping[tuple[int, int], Path]
) -> tuple[SequenceBlock, NDArray[np.uint64]]:
    length = manifest.sequence_length
    rows = np.full((len(sequences), length), manifest.pad_id, dtype=manifest.token_dtype)
    ordinals = np.zeros(len(pieces), dtype=np.uint64)
    places = (pieces.sequence.astype(np.int64) - sequences.start) * length + pieces.start
    group = pieces.source.astype(np.int64) << 32 | pieces.shard
    order = np.argsort(group, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        source, index = int(pieces.source[mine[0]]), int(pieces.shard[mine[0]])
        if (source, index) not in shards:
            raise PackingError(
                f"pack: the plan asks for shard {index} of source {source}, which is not encoded; pack the "
                "encoding that was mixed"
            )
        shard = EncodedShard.open(shards[source, index])
        its = PieceTable(*(values[mine] for values in pieces.columns().values()))
        _copy(manifest, shard, its, places[mine], rows.reshape(-1))
        ordinals[mine] = shard.ordinals[its.document.astype(np.int64)]
    block = SequenceBlock(
        rows,
        np.searchsorted(pieces.sequence, sequences.start + np.arange(len(sequences) + 1)),
        pieces.length.astype(np.int64),
        pieces.document_start.astype(np.int64),
    )
    return block, ordinals


def _copy(
    manifest: PackedManifest,
    shard: EncodedShard,
    pieces: PieceTable,
    places: NDArray[np.int64],
    rows: NDArray[Any],
) -> None:
    body = _Body.of(manifest, pieces, shard)
    if shard.tokens.dtype != rows.dtype:
        raise PackingError(
            f"pack: the shard has {shard.tokens.dtype} tokens, the plan says {rows.dtype}; encode again"
        )
    is_rearranged = pieces.fim > 0
    runs: _Runs = [(body.begin, body.length, places)]
    if manifest.fim is not None and is_rearranged.any():
        plain = ~is_rearranged
        runs = [(body.begin[plain], body.length[plain], places[plain])]
        runs += _rearranged(manifest.fim, body, pieces, places, np.flatnonzero(is_rearranged), rows)
    starts, lengths, goals = (np.concatenate(column) * rows.itemsize for column in zip(*runs, strict=True))
    gather(np.asarray(shard.tokens).view(np.uint8), starts, lengths, goals, rows.view(np.uint8))


@dataclass(frozen=True)
class _Body:
    """The places of pieces in the encoded shard; all arrays int64 [p]."""

    begin: NDArray[np.int64]  # index of the piece's first token
    length: NDArray[np.int64]  # number of its tokens
    head: NDArray[np.int64]  # 1 where the piece begins with the token that begins the document, else 0
    tail: NDArray[np.int64]  # 1 where the piece ends with the token that ends the document, else 0

    @classmethod
    def of(cls, manifest: PackedManifest, pieces: PieceTable, shard: EncodedShard) -> Self:
        """Locate the pieces of one shard; documents must begin and end with the packing's boundary tokens."""
        document = pieces.document.astype(np.int64)
        start = pieces.document_start.astype(np.int64)
        length = pieces.length.astype(np.int64) - FIM_TOKENS * (pieces.fim > 0)
        there = document < shard.num_documents
        known = np.where(there, document, 0)
        lengths = np.diff(shard.offsets)[known] if shard.num_documents else np.zeros_like(start)
        wrong = np.flatnonzero(~there | (start + length > lengths))
        if len(wrong):
            raise PackingError(
                f"pack: the plan uses {int((start + length)[wrong[0]])} tokens of document "
                f"{int(document[wrong[0]])}, which the encoded shard {shard.path} does not have; mix and "
                "pack the encoding that the plan was made from"
            )
        begin, begin_id = shard.offsets[document] + start, manifest.begin_of_document_id
        end_id = manifest.end_of_document_id
        head = (start == 0) & (begin_id is not None)
        tail = (start + length == lengths) & (end_id is not None)
        for token_id, at, word in (
            (begin_id, begin[head], "begin"),
            (end_id, (begin + length - 1)[tail], "end"),
        ):
            other = shard.tokens[at]
            other = other[other != token_id] if token_id is not None else other[:0]
            if len(other):
                raise PackingError(
                    f"pack: a document of the encoded shard {shard.path} does not {word} with token "
                    f"{token_id} but with {int(other[0])}; encode again"
                )
        return cls(begin, length, head.astype(np.int64), tail.astype(np.int64))


def _rearranged(
    fim: FimTokens,
    body: _Body,
    pieces: PieceTable,
    places: NDArray[np.int64],
    chosen: NDArray[np.intp],
    rows: NDArray[Any],
) -> _Runs:
    """The runs of rearranged pieces, as `tasks.fim.rearrangement` orders them; adds their three tokens."""
    head, tail = body.head[chosen], body.tail[chosen]
    begin = body.begin[chosen] + head
    text = body.length[chosen] - head - tail
    keys = DocumentKeys(*(getattr(pieces, name)[chosen] for name in ("source", "shard", "document", "epoch")))
    a, b = choose_cuts(keys, pieces.document_start[chosen], text, fim.seed)
    place = places[chosen] + head
    prefix, suffix, middle, middle_token = form_places(pieces.fim[chosen], place, a, text - b)
    rows[place], rows[suffix - 1], rows[middle_token] = fim.prefix_id, fim.suffix_id, fim.middle_id
    return [
        (begin - head, head, places[chosen]),
        (begin, a, prefix),
        (begin + b, text - b, suffix),
        (begin + a, b - a, middle),
        (begin + text, tail, place + 3 + text),
    ]


def of_shards(
    manifest: PackedManifest, entries: Sequence[PackedShardEntry], **changed: object
) -> PackedManifest:
    """The manifest with other shards, and their figures."""
    return manifest.model_copy(update=figures_of(entries, manifest.sequence_length) | changed)


def figures_of(entries: Sequence[PackedShardEntry], sequence_length: int) -> dict[str, Any]:
    """The fields of a manifest that follow from its shards."""
    num_sequences, num_tokens = (
        sum(getattr(entry, name) for entry in entries) for name in ("num_sequences", "num_tokens")
    )
    return {
        "shards": tuple(entries),
        "num_sequences": num_sequences,
        "num_tokens": num_tokens,
        "num_padding_tokens": num_sequences * sequence_length - num_tokens,
    }


def assembled(
    shards: Sequence[Path],
    wanted: Sequence[PackedShardEntry],
    out: Path,
    said: Mapping[str, Any] | None = None,
) -> PackedManifest:
    """Hard-link the files of packed shards into `out`, and write the files of the whole folder."""
    parts = [PackedManifest.open(path) for path in shards]
    entries = tuple(entry for part in parts for entry in part.shards)
    if entries != tuple(wanted):
        raise PackingError(
            f"pack: the packed shards {[entry.index for entry in entries]} are not the plan's "
            f"{len(wanted)} shards in order; write every shard of this plan"
        )
    whole, *others = [of_shards(part, entries) for part in parts]
    if any(other != whole for other in others):
        raise PackingError(
            "pack: the packed shards belong to different packings; write all shards with the same parameters"
        )
    whole = whole.model_copy(update=said)
    for folder, part in zip(shards, parts, strict=True):
        raise_if_stopped()
        for file in shard_files(folder, part.shards[0].index, part):
            link(file, out / file.relative_to(folder))
    write_folder_files(out, whole)
    return whole


def link(file: Path, place: Path) -> None:
    """Hard-link a file; copy it if the file system cannot link it."""
    place.parent.mkdir(exist_ok=True)
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)
