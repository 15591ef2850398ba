"""Write packed sequences in other formats, block by block, without encoding or packing again."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.packed.block import SequenceBlock, ShardShape, group_rows
from tokmill.tasks.formats.packed.layout import PackedFormat, PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.shards import PieceRows, open_shard
from tokmill.tasks.formats.packed.writing import write_sequences
from tokmill.tasks.packing.assemble import link

_BLOCK_TOKENS = 1 << 24


def export_shard(
    packed: Path,
    manifest: PackedManifest,
    index: int,
    formats: Sequence[PackedFormat],
    out: Path,
    *,
    labels: bool = False,
) -> None:
    """Write one shard of a packed artifact in other formats; hard-link its table of pieces.

    Args:
        packed: the artifact's directory.
        manifest: its `packed.json`.
        index: index of the shard.
        formats: formats to write.
        out: an existing directory.
        labels: whether to write labels and label masks, too.

    Raises:
        StoreError: a file of the artifact is missing or broken.
        PackingError: a format cannot hold the shard.
    """
    source, files = ShardFiles(packed, index), ShardFiles(out, index)
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    shape = ShardShape(manifest.num_sequences_of(index), manifest.sequence_length, dtype, labels)
    with write_sequences(files, shape, formats) as append:
        for block in shard_blocks(source, manifest):
            append(block)
    with readable(source.pieces, "table of pieces"):
        pq.read_metadata(source.pieces)
    link(source.pieces, files.pieces)


def shard_blocks(files: ShardFiles, manifest: PackedManifest) -> Iterator[SequenceBlock]:
    """Yield the sequences of one shard in order, in blocks for `write_sequences`.

    Raises:
        StoreError: a file is missing or broken.
    """
    opened = open_shard(files.folder, files.index, manifest)
    pieces = PieceRows.open(files, manifest)
    lengths = pieces.columns["length"].astype(np.int64)
    starts = pieces.columns["document_start"].astype(np.int64)
    num_sequences, length = manifest.num_sequences_of(files.index), manifest.sequence_length
    step = max(1, _BLOCK_TOKENS // (group_rows(length) * length)) * group_rows(length)
    for first in range(0, num_sequences, step):
        stop = min(first + step, num_sequences)
        begin, end = int(pieces.firsts[first]), int(pieces.firsts[stop])
        rows = np.empty((stop - first, length), dtype=np.dtype(manifest.dtype).newbyteorder("<"))
        for row in range(first, stop):
            rows[row - first] = opened.tokens(row)
        yield SequenceBlock(
            rows,
            pieces.firsts[first : stop + 1] - begin,
            lengths[begin:end],
            starts[begin:end],
            manifest.mask_continued,
        )
