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

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import untrue
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import (
    Append,
    BoundedShard,
    SequenceBlock,
    ShardShape,
    check_rows,
)

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_CODES = {"uint16": 8, "int32": 4, "int64": 5}
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}


@contextmanager
def write_megatron(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write both files; Megatron has no uint32, so wide tokens are stored as int32."""
    dtype = np.dtype("<u2") if shape.dtype.itemsize == 2 else np.dtype("<i4")
    each_lengths: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    each_bounds = [np.zeros(1, dtype=np.int64)]
    with paths[0].open("wb") as out:

        def append(block: SequenceBlock) -> None:
            is_token = np.arange(shape.sequence_length) < block.num_tokens[:, None]
            block.rows[is_token].astype(dtype).tofile(out)
            each_lengths.append(block.lengths)
            each_bounds.append(each_bounds[-1][-1] + block.firsts[1:])

        yield append
    lengths, bounds = np.concatenate(each_lengths), np.concatenate(each_bounds)
    with paths[1].open("wb") as index:
        index.write(_HEADER.pack(_MAGIC, 1, _CODES[dtype.name], len(lengths), len(bounds)))
        lengths.astype("<i4").tofile(index)
        ((np.cumsum(lengths) - lengths) * dtype.itemsize).astype("<i8").tofile(index)
        bounds.astype("<i8").tofile(index)


def open_megatron(paths: Sequence[Path], manifest: PackedManifest, index: int) -> BoundedShard:
    """Map both files of a shard into memory."""
    file, index_file = paths
    own = np.dtype(manifest.dtype)
    try:
        data = index_file.read_bytes()
        dtype, num_pieces, num_bounds = _parsed_header(data)
        lengths = np.frombuffer(data, "<i4", num_pieces, _HEADER.size)
        bounds = np.frombuffer(data, "<i8", num_bounds, _HEADER.size + 12 * num_pieces)
        pointers = np.frombuffer(data, "<i8", num_pieces, _HEADER.size + 4 * num_pieces)
        flat: NDArray[Any] = np.empty(0, dtype=dtype)
        if file.stat().st_size:  # an empty file cannot be mapped
            flat = np.memmap(file, dtype=dtype, mode="r")
    except (OSError, ValueError, struct.error) as error:
        raise broken(index_file, "not readable as Megatron's index", error) from error
    if dtype.itemsize != own.itemsize:
        raise untrue(index_file, f"its tokens are {dtype}, and must be {own}")
    sums = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    wrong = np.flatnonzero(pointers != sums[:-1] * dtype.itemsize)
    if len(wrong):
        place = int(wrong[0])
        raise untrue(
            index_file,
            f"pointer {place} is {int(pointers[place])}, and must be {int(sums[place]) * dtype.itemsize}, "
            "after the pieces before it",
        )
    check_rows(index_file, len(bounds) - 1, manifest.shard(index).num_sequences)
    if sums[-1] != len(flat):
        raise StoreError(
            f"{file}: {len(flat)} tokens must be {sums[-1]}, as its index says; verify the artifact"
        )
    places: list[int] = []  # of each sequence's first token, once the bounds are checked

    def tokens(row: int) -> NDArray[Any]:
        first, stop = places[row], places[row + 1]
        padded = np.full(manifest.sequence_length, manifest.pad_id, dtype=own)
        padded[: stop - first] = flat[first:stop]
        return padded

    shard = BoundedShard(index_file, manifest, tokens, bounds, lengths)
    places += sums[bounds].tolist()
    return shard


def _parsed_header(data: bytes) -> tuple[np.dtype[Any], int, int]:
    """The dtype, and the numbers of pieces and of document bounds."""
    magic, version, code, num_pieces, num_bounds = _HEADER.unpack_from(data)
    if (magic, version) != (_MAGIC, 1) or code not in _DTYPES:
        raise ValueError(f"version {version} and dtype code {code} are not known")
    expected = _HEADER.size + 12 * num_pieces + 8 * num_bounds
    if len(data) != expected:
        raise ValueError(
            f"{len(data)} bytes must be {expected}, for {num_pieces} pieces, {num_bounds} bounds"
        )
    return _DTYPES[code], num_pieces, num_bounds
