r"""The format "megatron": the `.bin` and `.idx` of Megatron-LM's `IndexedDataset`.

Megatron's "sequence" is one of our pieces, and its "document" is one of our sequences: the document index
groups the pieces. Megatron's GPT readers treat every "sequence" as a document, which is right for pieces.
Padding is not stored, since Megatron has none; the reader restores it.

`.idx`, little-endian: `MMIDIDX\0\0`, version uint64 = 1, code of the dtype uint8, number of pieces uint64,
number of document bounds uint64; then for each piece its tokens as int32 and its place in `.bin` in bytes as
int64; then the document bounds as int64, from 0 to the number of pieces.

Source: megatron-core, `megatron/core/datasets/indexed_dataset.py`.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import untrue
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import (
    Append,
    PackedShard,
    SequenceBlock,
    ShardShape,
    bounded_shard,
    check_rows,
)

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
# Megatron has no uint32, so wide tokens are stored as int32.
_DTYPES: dict[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<i4")}
_CODES = {2: 8, 4: 4}


@contextmanager
def write_megatron(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write both files."""
    width = shape.dtype.itemsize
    each_lengths, each_bounds = [np.empty(0, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    with paths[0].open("wb") as out:

        def append(block: SequenceBlock) -> None:
            block.rows[block.is_token].astype(_DTYPES[width]).tofile(out)
            each_lengths.append(block.lengths)
            each_bounds.append(each_bounds[-1][-1] + block.firsts[1:])

        yield append
    lengths, bounds = np.concatenate(each_lengths), np.concatenate(each_bounds)
    with paths[1].open("wb") as index:
        index.write(_HEADER.pack(_MAGIC, 1, _CODES[width], len(lengths), len(bounds)))
        lengths.astype("<i4").tofile(index)
        ((np.cumsum(lengths) - lengths) * width).astype("<i8").tofile(index)
        bounds.astype("<i8").tofile(index)


def open_megatron(paths: Sequence[Path], manifest: PackedManifest, index: int) -> PackedShard:
    """Map both files of a shard into memory."""
    own, width = np.dtype(manifest.dtype), manifest.token_dtype.itemsize
    try:
        data = paths[1].read_bytes()
        *head, num_pieces, num_bounds = _HEADER.unpack_from(data)
        lengths = np.frombuffer(data, "<i4", num_pieces, _HEADER.size)
        pointers = np.frombuffer(data, "<i8", num_pieces, _HEADER.size + 4 * num_pieces)
        bounds = np.frombuffer(data, "<i8", num_bounds, _HEADER.size + 12 * num_pieces)
        flat: NDArray[Any] = np.empty(0, dtype=_DTYPES[width])
        if paths[0].stat().st_size:  # an empty file cannot be mapped
            flat = np.memmap(paths[0], dtype=_DTYPES[width], mode="r")
    except (OSError, ValueError, struct.error) as error:
        raise broken(paths[1], "not readable as Megatron's index", error) from error
    if head != [_MAGIC, 1, _CODES[width]] or len(data) != _HEADER.size + 12 * num_pieces + 8 * num_bounds:
        raise untrue(paths[1], f"{len(data)} bytes are not the index of {num_pieces} pieces of {own}")
    check_rows(paths[1], len(bounds) - 1, manifest.shard(index).num_sequences)
    sums = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if sums[-1] != len(flat) or (pointers != sums[:-1] * width).any():
        raise untrue(
            paths[1], f"pieces of {sums[-1]} tokens must lie one after the other, and be {len(flat)}"
        )

    def tokens(row: int) -> NDArray[Any]:
        piece = flat[sums[bounds[row]] : sums[bounds[row + 1]]]
        padded = np.full(manifest.sequence_length, manifest.pad_id, dtype=own)
        padded[: len(piece)] = piece
        return padded

    return bounded_shard(paths[1], manifest, tokens, (bounds, lengths))
